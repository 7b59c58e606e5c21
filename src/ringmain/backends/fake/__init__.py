"""The `fake` backend: topics in this process alone, on a virtual clock. `ringmain.testing` is its public face."""
