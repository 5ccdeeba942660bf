"""How often a verdict is right: good and failing results of many kinds, made by a script, and the rates of error."""
