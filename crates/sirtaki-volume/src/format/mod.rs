//! Volumes in files, behind one trait.
