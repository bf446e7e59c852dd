//! stub
use crate::collective::Algorithm;
use crate::*;
/// stub
pub struct MeshCommunicator;
#[allow(missing_docs)]
impl MeshCommunicator {
    pub fn new(_m: crate::mesh::Mesh, _s: &Settings, _c: Option<()>) -> Self {
        Self
    }
    pub fn all_reduce(&mut self, _d: SliceMut<'_>, _r: Reduction) -> Result<(), CommError> {
        unimplemented!()
    }
    pub fn send(&mut self, _d: Slice<'_>, _r: Rank) -> Result<(), CommError> {
        unimplemented!()
    }
    pub fn receive(&mut self, _d: SliceMut<'_>, _r: Rank) -> Result<(), CommError> {
        unimplemented!()
    }
    pub fn force(&mut self, _d: Option<Algorithm>) -> Result<(), CommError> {
        Ok(())
    }
}
