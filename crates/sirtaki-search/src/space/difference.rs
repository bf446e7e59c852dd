//! What changed between two spaces, in words. A study goes on only in the space in which it began: in another one its
//! points would mean something else.

use super::{Parameter, Space};

impl Space {
    /// One line per parameter that `other` lacks, has in addition, or has otherwise; the order does not matter.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let twin = |of: &Parameter, space: &Self| space.index(&of.name).map(|index| space.parameters()[index].clone());
        let mut lines = Vec::new();
        for mine in self.parameters() {
            match twin(mine, other) {
                None => lines.push(format!("`{}` is gone; it was {mine}", mine.name)),
                Some(theirs) if theirs != *mine => lines.push(format!("`{}` was {mine} and is {theirs}", mine.name)),
                Some(_) => {}
            }
        }
        let new = other.parameters().iter().filter(|theirs| self.index(&theirs.name).is_none());
        lines.extend(new.map(|theirs| format!("`{}` is new: {theirs}", theirs.name)));
        lines
    }
}
