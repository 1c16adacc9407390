"""The runtime: everything behind the door. Importing it loads nothing heavy."""
