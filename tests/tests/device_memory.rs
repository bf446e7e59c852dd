//! Ranks that work in each other's device memory: processes of their own, with the stand-in for the CUDA driver.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    env, fs,
    process::{Child, Stdio},
    sync::Arc,
};

use sirtaki_comm::{
    DType, Reduction, Settings as CommSettings,
    device::Stream,
    rendezvous::{FileStore, connect},
    secure::Secret,
};
use sirtaki_engine::{DeviceSettings, Engine, Operation, Request, Settings, Tensor, TensorPlace};
use sirtaki_tests::{
    data::Data,
    stand_in::{Killed, another, download, gpu, library, upload},
};

const RANKS: usize = 3;

/// Runs this test once more in a process for each rank; false in the process that starts them.
fn is_rank(test: &str, variables: &[(&str, &str)]) -> bool {
    if env::var("TEST_RANK").is_ok() {
        return true;
    }
    let (folder, secret) = (tempfile::tempdir().unwrap(), Secret::random().unwrap());
    let start = |rank: usize| -> Child {
        let mut command = another(test, variables);
        command.env("STAND_IN_KERNELS", "1").env("TEST_RANK", rank.to_string()).env("TEST_STORE", folder.path());
        command.env("TEST_SECRET", secret.to_hex().as_str());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let ranks: Vec<Killed> = (0..RANKS).map(|rank| Killed(start(rank))).collect();
    for (rank, mut process) in ranks.into_iter().enumerate() {
        let (mut out, mut err) = (process.0.stdout.take().unwrap(), process.0.stderr.take().unwrap());
        let status = process.0.wait().unwrap();
        let [out, err] =
            [&mut out as &mut dyn std::io::Read, &mut err].map(|from| std::io::read_to_string(from).unwrap());
        assert!(status.success() && out.contains("1 passed"), "rank {rank}: {out}{err}");
    }
    false
}

/// This process as a rank of a job of this name.
fn engine(job: &str) -> Engine {
    let rank = env::var("TEST_RANK").unwrap().parse().unwrap();
    let secret = Secret::from_hex(&env::var("TEST_SECRET").unwrap()).unwrap();
    let settings = CommSettings::new(secret);
    let store = Arc::new(FileStore::new(env::var("TEST_STORE").unwrap(), job).unwrap());
    let world = connect(store, rank, RANKS, settings.clone()).unwrap();
    let device = DeviceSettings {
        driver: Some(library()),
        nccl: Some("/nowhere/libnccl.so.2".into()),
        nvml: Some(library()),
        ..Default::default()
    };
    Engine::start(world, &settings, Settings { device, ..Settings::default() }).unwrap()
}

fn run(engine: &Engine, operation: Operation, data: &Data, stream: &Stream) -> Vec<f64> {
    let (memory, view) = upload(data, stream);
    let request = Request::new("x", operation, view.dtype(), &[view.len()]).placed(TensorPlace::Device);
    // SAFETY: the memory is the owner, and nobody else has it.
    let tensor = unsafe { Tensor::on_device(view, Arc::new(stream.record().unwrap()), Box::new(memory)) };
    let mut result = engine.submit(request, tensor).wait_one().unwrap().into_tensor().unwrap();
    result.await_on(stream).unwrap();
    download(result.view().unwrap(), stream).numbers()
}

/// What every rank does on its device; returns how tensors travelled.
fn work(engine: &Engine, device: u32) -> String {
    let rank = engine.group().rank();
    let stream = gpu(device).stream(false).unwrap();
    let mine = Data::new(DType::F32, &[rank as f64 + 1.0; 5000]);
    for _ in 0..5 {
        assert_eq!(run(engine, Operation::AllReduce(Reduction::SUM), &mine, &stream), vec![6.0; 5000]);
    }
    let short = Data::new(DType::I32, &vec![rank as f64; rank + 1]);
    assert_eq!(run(engine, Operation::AllGather, &short, &stream), [0.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
    assert_eq!(run(engine, Operation::Broadcast { root: 2 }, &mine, &stream), vec![3.0; 5000]);
    engine.device_way().unwrap().to_owned()
}

/// Bytes of device memory in this process that others can open, or that belong to others.
fn shared_bytes() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let bytes = |line: &str| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16));
        Some(to.ok()? - from.ok()?)
    };
    maps.lines().filter(|line| line.contains("memfd:stand-in")).filter_map(bytes).sum()
}

#[test]
fn ranks_that_share_a_device_give_its_memory_back_when_all_leave() {
    if !is_rank("ranks_that_share_a_device_give_its_memory_back_when_all_leave", &[]) {
        return;
    }
    for job in ["first", "second"] {
        let engine = engine(job);
        let way = work(&engine, 0);
        assert!(way.starts_with("in the memory of their GPUs, because all ranks share one GPU"), "{way}");
        assert!(shared_bytes() >= RANKS * (128 << 20), "{}", shared_bytes());
        engine.barrier("end").unwrap();
        drop(engine);
        assert!(shared_bytes() < 128 << 20, "{} bytes are still reserved", shared_bytes());
    }
}

#[test]
fn devices_that_reach_each_other_need_no_nccl() {
    if is_rank("devices_that_reach_each_other_need_no_nccl", &[]) {
        let engine = engine("job");
        let way = work(&engine, engine.group().rank() as u32);
        assert!(way.starts_with("in the memory of their GPUs, because rank 0 has no NCCL: "), "{way}");
        assert!(way.ends_with("; GPUs of this host are connected by NVLink"), "{way}");
    }
}

#[test]
fn devices_that_do_not_reach_each_other_are_staged() {
    if is_rank("devices_that_do_not_reach_each_other_are_staged", &[("STAND_IN_PEERS", "0")]) {
        let engine = engine("job");
        let way = work(&engine, engine.group().rank() as u32);
        assert!(way.starts_with("through the host's memory, because rank 0 has no NCCL: "), "{way}");
        assert!(way.contains("peer access is not supported between these two devices"), "{way}");
    }
}
