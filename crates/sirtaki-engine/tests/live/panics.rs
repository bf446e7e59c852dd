//! A panic in a thread of the engine's is an error for everybody who waits, on all ranks.

use std::{sync::Arc, time::Duration};

use sirtaki_comm::DType;
use sirtaki_engine::{Operation, Request, Settings, Tensor};

use super::ranks::{each, sum};

/// Memory that cannot be freed.
struct Cursed(#[allow(dead_code, reason = "it keeps the elements")] Vec<i64>);

impl Drop for Cursed {
    fn drop(&mut self) {
        panic!("this memory is cursed");
    }
}

fn cursed(mut elements: Vec<i64>) -> Tensor {
    let (start, count) = (elements.as_mut_ptr().cast(), elements.len());
    // SAFETY: the vector does not move its elements and lives as long as the owner.
    unsafe { Tensor::foreign(start, DType::I64, count, Box::new(Cursed(elements))) }
}

/// What all ranks say of it, which is the same.
fn common_reason(errors: &[String]) -> &str {
    let reason = |error: &str| error.split_once(" was not done: ").map(|(_, reason)| reason.to_owned());
    assert!(errors.iter().all(|error| reason(error).is_some() && reason(error) == reason(&errors[0])), "{errors:#?}");
    &errors[0]
}

#[test]
fn a_panic_of_the_engine_thread_is_an_error_on_all_ranks() {
    for culprit in [0, 1] {
        let errors = each(3, &Settings::default(), |engine| {
            let request = Request::new("gather", Operation::AllGather, DType::I64, &[1]);
            let odd = engine.group().rank() == culprit;
            let ticket = engine.submit(request, if odd { cursed(vec![1]) } else { Tensor::from_vec(vec![1_i64]) });
            let later = sum(engine, "later", 1);
            // The others may have been through by then.
            let gathered = ticket.wait();
            assert!(gathered.is_err() || !odd);
            let error = later.wait().unwrap_err().to_string();
            assert!(sum(engine, "again", 1).wait().is_err(), "it is over");
            error
        });
        let reason = common_reason(&errors);
        assert!(reason.contains(&format!("the engine thread of rank {culprit} (host ")), "{reason}");
        assert!(reason.contains("panicked: this memory is cursed"), "{reason}");
    }
}

#[test]
fn a_panic_of_the_watching_thread_is_an_error_on_all_ranks() {
    let settings = Settings {
        warn_after: Some(Duration::from_millis(50)),
        warn: Arc::new(|_| panic!("nobody wants to hear this")),
        ..Settings::default()
    };
    let errors = each(3, &settings, |engine| {
        let late = engine.group().rank() == 2;
        let _busy = late.then(|| engine.hand_in());
        sum(engine, if late { "other" } else { "missing" }, 1).wait().unwrap_err().to_string()
    });
    let reason = common_reason(&errors);
    assert!(reason.contains("the watching thread of rank 0 (host "), "{reason}");
    assert!(reason.contains("panicked: nobody wants to hear this"), "{reason}");
}
