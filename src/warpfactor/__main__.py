"""`python -m warpfactor`: the command line without the script that pip installs."""

from warpfactor.cli.app import main

if __name__ == "__main__":
    main()
