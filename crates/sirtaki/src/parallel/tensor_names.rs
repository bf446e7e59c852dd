//! Where a visitor is in a module. Paths are the names under which ranks know each other's tensors.

use sha2::{Digest, Sha256};

/// The fields that lead from a module to the one being visited.
#[derive(Debug, Default)]
pub(super) struct Path(Vec<String>);

impl Path {
    pub(super) fn enter(&mut self, field: &str) {
        self.0.push(field.into());
    }

    pub(super) fn leave(&mut self) {
        self.0.pop();
    }

    /// The path, preceded by a word for what is done with the tensor there.
    pub(super) fn name(&self, purpose: &str) -> String {
        format!("{purpose}/{}", self.0.join("."))
    }
}

/// The name of the group of these tensors. Ranks whose modules differ have different ones, and the engine says so
/// instead of waiting for tensors that never come.
pub(super) fn group<'a>(purpose: &str, names: impl Iterator<Item = &'a str>) -> String {
    let mut digest = Sha256::new();
    let count = names.map(|name| digest.update(format!("{name}\n"))).count();
    let digest = digest.finalize();
    format!(
        "{purpose} of {count} tensors, fingerprint {:02x}{:02x}{:02x}{:02x}",
        digest[0], digest[1], digest[2], digest[3]
    )
}
