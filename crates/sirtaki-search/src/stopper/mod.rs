//! Which running trials are not worth finishing, from the values that they and others reported at the same steps.
