//! All links of a group, and exchanges over them.
