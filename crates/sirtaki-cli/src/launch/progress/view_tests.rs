use sirtaki_engine::telemetry::{GpuSample, Progress};

use super::*;
use crate::launch::progress::going::RankMoment;

fn plain(_: Style, text: &str) -> String {
    text.into()
}

fn rank(rank: usize, late: f64) -> RankMoment {
    let phase = (late > 0.0).then_some("input");
    RankMoment {
        rank,
        host: "a".into(),
        late: Some(late),
        phase,
        memory: 1 << 20,
        step: Some(703),
        ..RankMoment::default()
    }
}

fn moment() -> Moment {
    let said = Progress {
        step: 703,
        steps: Some(1407),
        epoch: Some(1.5),
        epochs: Some(3),
        samples: Some(90_000),
        loss: Some(0.09124),
        accuracy: Some(0.9712),
        test_loss: Some(0.08),
        test_accuracy: Some(0.98214),
    };
    Moment {
        seconds: 12.0,
        said,
        silent: 0.2,
        steps_per_second: Some(143.4),
        samples_per_second: Some(18_204.3),
        left: Some(4.2),
        ranks: vec![rank(0, 0.0), rank(1, 0.58)],
    }
}

#[test]
fn everything_is_shown_where_there_is_room() {
    let bar = format!("{}{}", "━".repeat(11), "─".repeat(13));
    let expected = [
        format!("{bar}  epoch 2/3  step 703/1407  5 s left  143 steps/s"),
        "loss 0.0912  accuracy 97.1 %  test accuracy 98.21 %  18,204 samples/s".into(),
        "late ▁▅  rank 1 keeps others waiting 58 % of the time, input".into(),
    ];
    assert_eq!(rows(&moment(), 100, &plain), expected);
    assert_eq!(
        line(&moment()),
        "epoch 2/3  step 703/1407  5 s left  143 steps/s  loss 0.0912  accuracy 97.1 %  test accuracy 98.21 %  \
         18,204 samples/s  rank 1 keeps others waiting 58 % of the time, input"
    );
}

#[test]
fn gpus_have_a_row_of_their_own() {
    let gpu = |memory: u64, busy| Some(GpuSample { memory: memory << 30, total: 80 << 30, busy });
    let mut moment = moment();
    moment.ranks[0].gpu = gpu(3, Some(90));
    assert_eq!(rows(&moment, 100, &plain)[2], "GPU 90 % busy  GPU memory 3.0 of 80.0 GiB");
    moment.ranks[1].gpu = gpu(5, Some(50));
    assert_eq!(rows(&moment, 100, &plain)[2], "GPUs 70 % busy  GPU memory 5.0 of 80.0 GiB at most");
    assert!(line(&moment).contains("samples/s  GPUs 70 % busy  GPU memory 5.0 of 80.0 GiB at most  rank 1"));
    moment.ranks.iter_mut().for_each(|rank| rank.gpu = gpu(3, None));
    assert_eq!(rows(&moment, 100, &plain)[2], "GPU memory 3.0 of 80.0 GiB at most", "it does not say how busy it is");
}

#[test]
fn rows_keep_within_the_window() {
    for columns in [1, 10, 20, 40, 60, 80, 100] {
        for row in rows(&moment(), columns, &plain) {
            assert!(row.width() < columns.max(12), "{columns}: {row}");
        }
    }
    assert!(rows(&moment(), 40, &plain)[0].contains("step 703/1407"), "the step is more important than the rest");
}

#[test]
fn what_is_not_known_is_not_shown() {
    let bare = Moment { said: Progress { step: 3, ..Progress::default() }, ..Moment::default() };
    assert_eq!(rows(&bare, 80, &plain), ["step 3"]);
    assert_eq!(line(&bare), "step 3");
    let slow = Moment { steps_per_second: Some(0.05), silent: 75.9, ..bare };
    assert_eq!(rows(&slow, 80, &plain), ["step 3  last word 1 min 15 s ago  20.0 s per step"]);
    let odd = Progress { loss: Some(f64::INFINITY), test_loss: Some(1e-7), ..Progress::default() };
    assert_eq!(rows(&Moment { said: odd, ..Moment::default() }, 80, &plain)[1], "loss inf  test loss 1.000e-7");
}

#[test]
fn epochs_are_counted_from_one_and_end_with_the_last() {
    let at = |epoch| Moment { said: Progress { epoch: Some(epoch), ..moment().said }, ..moment() };
    for (epoch, text) in [(0.0, "epoch 1/3"), (0.99, "epoch 1/3"), (2.0, "epoch 3/3"), (3.0, "epoch 3/3")] {
        assert!(line(&at(epoch)).starts_with(text), "{epoch}");
    }
}

#[test]
fn nobody_is_blamed_for_little_and_many_ranks_share_cells() {
    let alike = Moment { ranks: vec![rank(0, 0.01), rank(1, 0.04)], ..moment() };
    assert_eq!(rows(&alike, 80, &plain)[2], "late ▁▁  no rank is late");
    let in_turn = Moment { ranks: vec![rank(0, 0.09), rank(1, 0.08)], ..moment() };
    assert_eq!(rows(&in_turn, 80, &plain)[2], "late ▁▁  ranks take turns, 9 % of the time at most");
    let mut ranks: Vec<RankMoment> = (0..100).map(|number| rank(number, 0.0)).collect();
    ranks[42] = RankMoment { host: "b".into(), phase: None, ..rank(42, 0.9) };
    let row = &rows(&Moment { ranks, ..moment() }, 120, &plain)[2];
    let strip = row.split(' ').nth(1).unwrap();
    assert_eq!((strip.chars().count(), strip.chars().position(|cell| cell == '█')), (25, Some(10)), "{row}");
    assert!(row.ends_with("rank 42 on b keeps others waiting 90 % of the time"), "{row}");
}

#[test]
fn colours_do_not_count_as_columns() {
    let paint = |_: Style, text: &str| format!("\x1b[2m{text}\x1b[0m");
    let (painted, bare) = (rows(&moment(), 60, &paint), rows(&moment(), 60, &plain));
    let strip = |row: &String| row.replace("\x1b[2m", "").replace("\x1b[0m", "");
    assert_eq!(painted.iter().map(strip).collect::<Vec<_>>(), bare);
}
