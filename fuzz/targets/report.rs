//! Whatever the files of a run folder contain, `sirtaki report` makes a whole page of it or says what is wrong.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;

/// Between the files of a folder, as one input.
const NEXT: &str = "\n====\n";

fuzz_target!(|text: &str| {
    let folder = sirtaki_fuzz::folder("report");
    let mut parts = text.split(NEXT);
    for name in ["run.json", "steps.jsonl", "profile.json", "plan.json"] {
        match parts.next() {
            Some(part) if !part.is_empty() => {
                fs::write(folder.join(name), part).expect("the build's folder can be written")
            }
            _ => drop(fs::remove_file(folder.join(name))),
        }
    }
    let (page, folder) = (folder.join("report.html"), folder.to_str().expect("a name of ours").to_owned());
    let read = sirtaki_fuzz::json("report", &[&folder]).is_some();
    let written = sirtaki_fuzz::run("report", &[&folder, "-o", page.to_str().expect("a name of ours")]).is_some();
    assert_eq!(read, written);
    if written {
        let page = fs::read_to_string(page).expect("a page");
        assert!(page.trim_end().ends_with("</html>") && !page.contains("NaN"), "{page}");
    }
});
