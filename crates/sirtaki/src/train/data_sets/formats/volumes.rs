//! Pairs of volumes.

use super::{DataContent, Domain, Format};
use crate::data::pairs;

pub(super) const FORMAT: Format = Format {
    name: "volumes",
    layout: "a folder with the folders inputs and labels, which have volumes of the same names",
    domain: Domain::Volumes,
    is_at: pairs::are_in,
    content: DataContent::Other,
};
