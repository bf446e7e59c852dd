use proptest::prelude::*;

use super::*;

/// What `np.save` writes.
pub(crate) fn encode(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    with_header(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"), values)
}

fn with_header(text: &str, values: &[u8]) -> Vec<u8> {
    let mut header = text.to_owned();
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(values);
    bytes
}

fn parse_bytes(bytes: &[u8]) -> Result<Array> {
    parse(Source::of_bytes(Path::new("x.npy"), bytes)?)
}

#[test]
fn every_type_is_read() {
    let read = |descr, bytes: &[u8]| parse_bytes(&encode(descr, "(2,)", bytes)).unwrap().into_parts().1;
    let bytes = |values: &[[u8; 8]; 2]| values.concat();
    assert_eq!(read("|u1", &[7, 255]), Values::U8(vec![7, 255]));
    assert_eq!(read("<i4", &[254, 255, 255, 255, 3, 1, 0, 0]), Values::I32(vec![-2, 259]));
    assert_eq!(read("<i8", &bytes(&[(-5_i64).to_le_bytes(), 6_i64.to_le_bytes()])), Values::I64(vec![-5, 6]));
    assert_eq!(read("<f4", &[0, 0, 128, 63, 0, 0, 0, 192]), Values::F32(vec![1.0, -2.0]));
    assert_eq!(read("<f8", &bytes(&[0.1_f64.to_le_bytes(), 1e300_f64.to_le_bytes()])), Values::F64(vec![0.1, 1e300]));
}

#[test]
fn many_values_come_in_order() {
    let values: Vec<f32> = (0..10_001).map(|n| n as f32).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let array = parse_bytes(&encode("<f4", "(73, 137)", &bytes)).unwrap();
    assert_eq!(array.into_parts(), (vec![73, 137], Values::F32(values)));
}

#[test]
fn scalars_and_empty_arrays_are_read() {
    assert_eq!(parse_bytes(&encode("|u1", "()", &[9])).unwrap().shape(), [0_usize; 0]);
    assert_eq!(parse_bytes(&encode("<f8", "(0, 5)", &[])).unwrap().shape(), [0, 5]);
}

#[test]
fn the_second_version_has_a_longer_length() {
    let one = encode("|u1", "(1,)", &[4]);
    let mut two = one[..6].to_vec();
    two.extend([2, 0]);
    two.extend(u32::from(u16::from_le_bytes([one[8], one[9]])).to_le_bytes());
    two.extend(&one[10..]);
    assert_eq!(parse_bytes(&two).unwrap(), parse_bytes(&one).unwrap());
}

#[test]
fn refusals_name_file_and_field() {
    let fortran = "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1)}";
    let mut unknown = encode("|u1", "(1,)", &[4]);
    unknown[6] = 9;
    let huge = "(4294967296, 4294967296)";
    let cases = [
        (b"PK\x03\x04....".to_vec(), "magic: this is not a .npy file"),
        (unknown, "version: 9.0 is not known"),
        (with_header(fortran, &[0; 4]), "fortran_order: columns come first"),
        (encode(">f4", "(1,)", &[0; 4]), "descr: values of type \">f4\" are not supported"),
        (encode("|b1", "(1,)", &[0; 1]), "descr: values of type \"|b1\" are not supported"),
        (encode("<f4", "(2, 3)", &[0; 23]), "values: 24 bytes are needed where 23 are left"),
        (encode("<f4", "(2, 3)", &[0; 25]), "length: there is more in the file than its header says"),
        (
            encode("<f4", "(4611686018427387904,)", &[]),
            "values: 18446744073709551615 bytes are needed where 0 are left",
        ),
        (encode("|u1", huge, &[]), "shape: [4294967296, 4294967296] is too large"),
        (with_header("['descr']", &[]), "header: this is not the description of an array"),
    ];
    for (bytes, expected) in cases {
        let error = parse_bytes(&bytes).unwrap_err();
        assert_eq!(error.to_string(), format!("`x.npy`: {expected}"));
        assert!(!error.hint().unwrap().is_empty());
    }
}

#[test]
fn headers_are_read_strictly() {
    let header = |shape| Some(Header { descr: "<f4".into(), fortran: false, shape });
    assert_eq!(Header::parse("{'shape':(3,4),\"fortran_order\":False,'descr':'<f4'}"), header(vec![3, 4]));
    assert_eq!(
        Header::parse(" { 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 3 , ) , } \n"),
        header(vec![3])
    );
    for wrong in [
        "",
        "{}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3 4)}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (3,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} more",
    ] {
        assert_eq!(Header::parse(wrong), None, "{wrong}");
    }
}

proptest! {
    #[test]
    fn any_change_of_a_file_is_survived(place in 0_usize..150, value: u8, cut in 0_usize..200) {
        let mut bytes = encode("<f4", "(2, 4)", &[1; 32]);
        if let Some(byte) = bytes.get_mut(place) {
            *byte = value;
        }
        bytes.truncate(cut.max(1));
        let _ = parse_bytes(&bytes);
    }

    #[test]
    fn any_header_is_survived(text in "[{}(),: '0-9a-z]{0,60}") {
        let _ = parse_bytes(&with_header(&text, &[0; 8]));
    }
}
