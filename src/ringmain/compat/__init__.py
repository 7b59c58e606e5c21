"""Drop-in modules for programs written for the libraries that ringmain unifies: change one import."""
