"""What `import pysyncq` finds in a process that was not told itself: gives its place to the drop-in module."""

from ringmain.compat import alias

alias("pysyncq")
