//! Which GPUs a host has and which of them a rank sees.
//!
//! Counts device files rather than asking `nvidia-smi`, which takes up to a second; and in a container, the device
//! files show what can be used, whereas the driver lists the whole machine.

use std::{fs, path::Path};

use super::cores;

/// The GPUs that processes of this host may use, by the names `CUDA_VISIBLE_DEVICES` knows.
pub fn usable(visible: Option<&str>) -> Vec<String> {
    match visible {
        Some(list) => listed(list),
        None => (0..count(Path::new("/dev"))).map(|index| index.to_string()).collect(),
    }
}

/// The share of rank `local_rank` of `local_size` of a host. `None` if there is nothing to choose from.
pub fn share(usable: &[String], local_rank: usize, local_size: usize) -> Option<Vec<String>> {
    (!usable.is_empty()).then(|| cores::share(usable, local_rank, local_size))
}

/// Whether a program is likely to choose its GPU itself. Scripts are: those of PyTorch, Horovod and others take number
/// `LOCAL_RANK` of all GPUs they see, and would fail if they saw only their own.
pub fn chooses_itself(program: &[String]) -> bool {
    program.iter().any(|word| {
        let name = word.rsplit('/').next().unwrap_or(word);
        name.starts_with("python")
            || name.ends_with(".py")
            || name.ends_with(".sh")
            || ["sh", "bash", "uv"].contains(&name)
    })
}

/// Like the driver, takes everything up to the first entry that cannot be a GPU: `0,1,-1,2` is two GPUs.
fn listed(list: &str) -> Vec<String> {
    let is_gpu = |name: &&str| {
        let number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        number || name.starts_with("GPU-") || name.starts_with("MIG-")
    };
    list.split(',').map(str::trim).take_while(is_gpu).map(Into::into).collect()
}

/// The files `nvidia0`, `nvidia1`, … of a folder.
fn count(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| is_device(name)).count()
}

fn is_device(name: &str) -> bool {
    name.strip_prefix("nvidia").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What the driver's kernel module calls the GPUs of the machine.
pub fn models() -> Vec<String> {
    let Ok(folders) = fs::read_dir("/proc/driver/nvidia/gpus") else { return Vec::new() };
    let mut names: Vec<String> = folders
        .filter_map(|folder| fs::read_to_string(folder.ok()?.path().join("information")).ok())
        .filter_map(|text| text.lines().find_map(|line| Some(line.strip_prefix("Model:")?.trim().to_owned())))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(count: usize) -> Vec<String> {
        (0..count).map(|index| index.to_string()).collect()
    }

    #[test]
    fn ranks_divide_the_gpus_and_share_them_only_when_they_must() {
        assert_eq!(share(&gpus(4), 1, 4), Some(vec!["1".into()]));
        assert_eq!(share(&gpus(4), 1, 2), Some(vec!["2".into(), "3".into()]));
        assert_eq!(share(&gpus(2), 3, 4), Some(vec!["1".into()]));
        assert_eq!(share(&[], 0, 1), None);
    }

    #[test]
    fn the_users_choice_is_what_there_is() {
        assert_eq!(usable(Some("2, 3")), ["2", "3"]);
        assert_eq!(usable(Some("GPU-8932f937,MIG-1")), ["GPU-8932f937", "MIG-1"]);
        assert_eq!(usable(Some("1,-1,2")), ["1"]);
        assert!(usable(Some("")).is_empty() && usable(Some("NoDevFiles")).is_empty());
    }

    #[test]
    fn device_files_are_counted_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia", "null"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(count(folder.path()), 2);
        assert_eq!(count(&folder.path().join("absent")), 0);
    }

    #[test]
    fn scripts_choose_themselves() {
        let chooses = |line: &str| chooses_itself(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        for line in
            ["python train.py", "/usr/bin/python3.12 -m train", "./train.py", "bash job.sh", "nsys profile python x"]
        {
            assert!(chooses(line), "{line}");
        }
        assert!(!chooses("./my-program --lr 0.1") && !chooses("/opt/pythonic/bin/solver"));
    }
}
