# Sources and tests of this folder.
