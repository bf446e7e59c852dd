//! Whatever a timeline or the description of a network says, `sirtaki predict` predicts numbers from it or refuses it.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let file = sirtaki_fuzz::folder("predict").join("input.json");
    fs::write(&file, bytes).expect("the build's folder can be written");
    let file = file.to_str().expect("a name of ours");
    for kind in [&[file][..], &["--model", file]] {
        let Some(forecast) = sirtaki_fuzz::json("predict", &[kind, &["--workers", "1,2,32"]].concat()) else {
            continue;
        };
        for row in forecast["rows"].as_array().expect("rows") {
            for number in ["step_seconds", "efficiency", "speedup"] {
                assert!(row[number].as_f64().is_some_and(|value| value >= 0.0), "{number} in {row}");
            }
        }
    }
});
