"""The `warpfactor` command: parse, call, print. The only layer that prints."""
