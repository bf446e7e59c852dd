//! Whatever ranks say, the table answers without a panic, and its answers can be read.

use std::time::Duration;

use sirtaki_engine::decide::{
    agree::Table,
    fuse::Limits,
    message::{Spoken, Verdict, decode, encode},
    order::Member,
};

pub(crate) fn check(bytes: &[u8]) {
    let Some(said) = decode::<Vec<(usize, Spoken)>>(bytes) else {
        return;
    };
    let mut table = Table::new(2, Limits { fused: 1024, large: 512 });
    let mut member = Member::new(1);
    for (rank, spoken) in said {
        table.hear(rank, spoken, Duration::ZERO);
        let verdicts = table.decide();
        let read: Vec<Verdict> = decode(&encode(&verdicts)).expect("a verdict can be read");
        read.into_iter().for_each(|verdict| member.hear(verdict));
        while let Some(step) = member.next_step() {
            if let sirtaki_engine::decide::order::Step::Vote { .. } = step {
                break;
            }
        }
        let _ = table.stalled(Duration::from_secs(60), Duration::from_secs(1));
    }
}
