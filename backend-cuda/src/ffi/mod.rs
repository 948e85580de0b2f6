//! Thin layer over the vendor's libraries: they are found at run time, a missing one is a typed error, nothing panics.
