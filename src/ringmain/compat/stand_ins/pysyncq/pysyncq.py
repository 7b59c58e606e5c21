"""What `import pysyncq` finds in a process that has not called `alias`: replaces itself with the drop-in module."""

from ringmain.compat import alias

alias("pysyncq")
