"""The `shm` backend: the native ring. `Publisher` and `Subscriber` are its endpoints; the rest is here."""
