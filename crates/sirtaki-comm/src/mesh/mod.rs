//! stub
use crate::*;
/// stub
pub struct Mesh;
impl Mesh {
    /// stub
    pub fn new(
        _g: Group,
        _l: Vec<Option<Box<dyn crate::link::Link>>>,
        _t: std::time::Duration,
        _s: Stopper,
    ) -> Result<Self, CommError> {
        Ok(Self)
    }
}
