//! The few rules of protobuf that are needed: a message is a sequence of numbered fields, each a number, eight or four
//! bytes, or a length and so many bytes.
//!
//! Reading allocates nothing: what has a length is a part of the message that was given, so a wrong length is noticed
//! when it points behind the end.

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Field<'a> {
    pub(crate) number: u64,
    pub(crate) value: Content<'a>,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Content<'a> {
    Number(u64),
    Eight([u8; 8]),
    Bytes(&'a [u8]),
    Four([u8; 4]),
}

/// The fields of a message, one after the other. The first error ends it.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn read(&mut self) -> Result<Field<'a>, &'static str> {
        let key = number(&mut self.rest)?;
        let value = match key & 7 {
            0 => Content::Number(number(&mut self.rest)?),
            1 => Content::Eight(*take(&mut self.rest, 8)?.first_chunk().ok_or(SHORT)?),
            2 => {
                let length = number(&mut self.rest)?;
                Content::Bytes(take(&mut self.rest, length)?)
            }
            5 => Content::Four(*take(&mut self.rest, 4)?.first_chunk().ok_or(SHORT)?),
            _ => return Err("a field is of a kind that protobuf does not have"),
        };
        Ok(Field { number: key >> 3, value })
    }
}

const SHORT: &str = "it ends in the middle of a field";

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

fn take<'a>(rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], &'static str> {
    let length = usize::try_from(length).map_err(|_| SHORT)?;
    let (taken, left) = rest.split_at_checked(length).ok_or(SHORT)?;
    *rest = left;
    Ok(taken)
}

fn number(rest: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        // Only one bit of the tenth byte has room.
        if shift == 63 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number has more than 64 bits")
}

/// The numbers of a repeated field: one, or many packed into bytes.
pub(crate) fn numbers(content: Content<'_>, into: &mut Vec<i64>) -> Result<(), &'static str> {
    match content {
        Content::Number(value) => into.push(value.cast_signed()),
        Content::Bytes(mut packed) => {
            while !packed.is_empty() {
                into.push(number(&mut packed)?.cast_signed());
            }
        }
        _ => return Err("a list of numbers holds something else"),
    }
    Ok(())
}

/// The floating-point numbers of a repeated field: one, or many packed into bytes.
pub(crate) fn floats(content: Content<'_>, into: &mut Vec<f64>) -> Result<(), &'static str> {
    match content {
        Content::Four(bytes) => into.push(f64::from(f32::from_le_bytes(bytes))),
        Content::Eight(bytes) => into.push(f64::from_le_bytes(bytes)),
        Content::Bytes(packed) if packed.len().is_multiple_of(4) => {
            into.extend(packed.as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))));
        }
        _ => return Err("a list of floating-point numbers holds something else"),
    }
    Ok(())
}

/// A message of texts and other messages.
pub(super) fn message_of(fields: &[(u64, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    fields.iter().for_each(|(number, bytes)| put(&mut out, *number, Content::Bytes(bytes)));
    out
}

/// Adds a field to a message.
pub(super) fn put(out: &mut Vec<u8>, number: u64, value: Content<'_>) {
    let kind = match value {
        Content::Number(_) => 0,
        Content::Eight(_) => 1,
        Content::Bytes(_) => 2,
        Content::Four(_) => 5,
    };
    put_number(out, number << 3 | kind);
    match value {
        Content::Number(value) => put_number(out, value),
        Content::Eight(bytes) => out.extend(bytes),
        Content::Four(bytes) => out.extend(bytes),
        Content::Bytes(bytes) => {
            put_number(out, bytes.len() as u64);
            out.extend(bytes);
        }
    }
}

fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_all_kinds() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 0x02, 7, 8, 0x1d, 0, 0, 0x80, 0x3f];
        let fields: Vec<Field<'_>> = Fields::of(&bytes).map(Result::unwrap).collect();
        assert_eq!(fields[0], Field { number: 1, value: Content::Number(150) });
        assert_eq!(fields[1], Field { number: 2, value: Content::Bytes(&[7, 8]) });
        let mut values = Vec::new();
        floats(fields[2].value, &mut values).unwrap();
        assert_eq!(values, [1.0]);
    }

    #[test]
    fn wrong_lengths_and_numbers_end_it() {
        for bytes in
            [&[0x12, 9, 1][..], &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], &[0x0b], &[0x80; 11]]
        {
            let mut fields = Fields::of(bytes);
            assert!(fields.next().unwrap().is_err(), "{bytes:?}");
            assert!(fields.next().is_none());
        }
    }
}
