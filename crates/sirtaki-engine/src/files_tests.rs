use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).unwrap().file_type().is_symlink()
}

#[test]
fn files_are_replaced_as_a_whole_and_keep_their_permissions() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a");
    write(&path, b"one").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let before = File::open(&path).unwrap();
    check(&path).unwrap();
    write(&path, b"two").unwrap();
    assert_eq!(io::read_to_string(before).unwrap(), "one", "who has it open sees what was there");
    assert_eq!(fs::read_to_string(&path).unwrap(), "two");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(names(root.path()), ["a"]);
}

#[test]
fn links_are_followed_and_stay() {
    let root = tempfile::tempdir().unwrap();
    let inside = |name: &str| root.path().join(name);
    fs::create_dir(inside("folder")).unwrap();
    fs::write(inside("folder/real"), "old").unwrap();
    symlink("folder/real", inside("link")).unwrap();
    symlink("link", inside("link to link")).unwrap();
    write(&inside("link to link"), b"new").unwrap();
    assert_eq!(fs::read_to_string(inside("folder/real")).unwrap(), "new");
    assert!(is_link(&inside("link")) && is_link(&inside("link to link")));
    // A link to nothing says where the file is wanted.
    symlink("folder/later", inside("dangling")).unwrap();
    write(&inside("dangling"), b"made").unwrap();
    assert_eq!(fs::read_to_string(inside("folder/later")).unwrap(), "made");
    symlink("round", inside("round")).unwrap();
    assert!(write(&inside("round"), b"").is_err() && check(&inside("round")).is_err());
    assert_eq!(names(&inside("folder")), ["later", "real"]);
}

#[test]
fn pipes_are_written_into() {
    let root = tempfile::tempdir().unwrap();
    let pipe = root.path().join("pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    check(&pipe).unwrap();
    let reader = {
        let pipe = pipe.clone();
        thread::spawn(move || fs::read_to_string(pipe).unwrap())
    };
    write(&pipe, b"through the pipe").unwrap();
    assert_eq!(reader.join().unwrap(), "through the pipe");
    assert!(is_pipe(&pipe));
}

#[test]
fn devices_are_written_into() {
    let root = tempfile::tempdir().unwrap();
    let link = root.path().join("null");
    // Through a link of our own, so that nothing can happen to this machine's device.
    symlink("/dev/null", &link).unwrap();
    assert_eq!(Target::find(&link).unwrap(), Target::Stream(link.clone()));
    check(&link).unwrap();
    write(&link, b"nothing").unwrap();
    assert!(is_link(&link) && names(root.path()) == ["null"]);
    let link = root.path().join("full");
    symlink("/dev/full", &link).unwrap();
    assert_eq!(write(&link, b"much").unwrap_err().kind(), ErrorKind::StorageFull);
    assert!(is_link(&link));
}

#[test]
fn open_files_are_written_into() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"first, ").unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    check(&path).unwrap();
    write(&path, b"second").unwrap();
    let mut text = String::new();
    io::Seek::rewind(&mut file).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "first, second");
}

#[test]
fn what_cannot_be_written_is_said_beforehand_and_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let says = |path: &Path| {
        let (asked, tried) = (check(path).unwrap_err().to_string(), write(path, b"").unwrap_err().to_string());
        assert_eq!(asked, tried);
        asked
    };
    assert_eq!(says(root.path()), "it is a folder");
    assert_eq!(says(Path::new("..")), "it is a folder");
    let missing = root.path().join("none");
    assert_eq!(says(&missing.join("a")), format!("there is no folder {}", missing.display()));
    fs::write(root.path().join("file"), "").unwrap();
    assert!(check(&root.path().join("file").join("a")).is_err());
    check(&root.path().join("new")).unwrap();
    assert_eq!(names(root.path()), ["file"]);
}

#[test]
fn drafts_have_names_that_nobody_can_foresee() {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("a");
    let drafts: Vec<Draft> = (0..2).map(|_| Draft::new(&place).unwrap()).collect();
    assert_ne!(drafts[0].hidden, drafts[1].hidden);
    assert!(drafts[0].hidden.to_str().unwrap().len() > place.to_str().unwrap().len() + 32);
    // A link that exists anyway is neither followed nor replaced.
    symlink("elsewhere", &drafts[0].hidden).unwrap();
    let hidden = drafts[0].hidden.clone();
    let mut drafts = drafts.into_iter();
    assert!(drafts.next().unwrap().publish().is_err());
    assert!(is_link(&hidden) && !root.path().join("elsewhere").exists() && !place.exists());
    drafts.next().unwrap().publish().unwrap();
    assert!(place.exists());
}

#[test]
fn everybody_gets_a_new_folder_of_their_own() {
    let root = tempfile::tempdir().unwrap();
    let wanted = root.path().join("runs/x");
    let ask = || (0..10).map(|_| new_folder(&wanted).unwrap()).collect::<Vec<_>>();
    let mut all: Vec<PathBuf> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 40);
    assert!(all[0].ends_with("x") && all.contains(&root.path().join("runs/x-40")));
    fs::write(root.path().join("file"), "").unwrap();
    assert!(new_folder(&root.path().join("file/x")).is_err());
}

#[test]
fn only_files_that_end_are_read() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    fs::write(path("file"), "12345").unwrap();
    symlink("file", path("link")).unwrap();
    assert_eq!(read(&path("link"), 5).unwrap(), b"12345");
    assert!(read(&path("link"), 4).unwrap_err().to_string().contains("more than the 4 bytes"));
    rustix::fs::mknodat(CWD, path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    symlink("/dev/zero", path("endless")).unwrap();
    for name in ["pipe", "endless", "."] {
        assert_eq!(read(&path(name), 5).unwrap_err().to_string(), "this is not a regular file", "{name}");
    }
}

#[test]
fn what_is_new_is_for_those_who_may_look_into_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (open, of_files) in [(0o700, 0o600), (0o750, 0o640)] {
        let inside = folder.path().join(format!("{open:o}"));
        fs::create_dir(&inside).unwrap();
        fs::set_permissions(&inside, fs::Permissions::from_mode(open)).unwrap();
        let [written, new, emptied, deeper] = ["written", "new", "emptied", "deeper"].map(|name| inside.join(name));
        write(&written, b"1").unwrap();
        create_new(&new).unwrap();
        create(&emptied).unwrap();
        make_inside(&deeper).unwrap();
        // A strict umask leaves less to others.
        assert!([&written, &new, &emptied].iter().all(|path| mode(path) | 0o040 & open == of_files));
        assert_eq!(mode(&deeper) | 0o050 & open, open);
        assert!(create_new(&new).is_err());
    }
}
