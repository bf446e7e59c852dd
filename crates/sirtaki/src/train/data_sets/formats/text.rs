//! Text.

use super::{DataContent, Domain, Format};
use crate::data::text;

pub(super) const FORMAT: Format = Format {
    name: "text",
    layout: "a text in UTF-8, named .txt, or a folder with some",
    domain: Domain::Text,
    is_at: |path| match path.is_dir() {
        true => text::files(path).is_ok_and(|files| !files.is_empty()),
        false => text::is_text(path) && path.exists(),
    },
    content: DataContent::Other,
};
