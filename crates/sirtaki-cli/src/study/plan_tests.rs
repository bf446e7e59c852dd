use super::*;
use crate::study::parse_duration;

const GOOD: &str = r#"
command   = ["python", "train.py", "--lr", "{lr}", "--optimizer", "{optimizer}", "--layers={layers}", "{momentum}"]
objective = "minimize val_loss"
trials    = 200
ranks     = 2
timeout   = "1h30m"
stop      = { method = "asha", min = 1, max = 27 }
env       = { OMP_NUM_THREADS = 1 }
enqueue   = [{ lr = 0.1, optimizer = "adam" }]
[space]
optimizer = ["sgd", "adam"]
lr        = { log = [1e-5, 1.0] }
layers    = { int = [1, 6] }
momentum  = { float = [0, 0.99], when = "optimizer == 'sgd'" }
"#;

fn parse(text: &str) -> Result<StudyPlan, Advice> {
    StudyPlan::parse(Path::new("study.toml"), text, "study")
}

#[test]
fn a_file_is_read_in_its_order() {
    let plan = parse(GOOD).unwrap();
    let Definition { name, space, objectives, sampler, stopper, trials, .. } = plan.definition;
    assert_eq!((name.as_str(), sampler.as_str(), trials), ("study", "auto", Some(200)));
    let names: Vec<&str> = space.parameters().iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["optimizer", "lr", "layers", "momentum"]);
    assert_eq!(objectives[0].to_string(), "minimize val_loss");
    assert_eq!(stopper.to_string(), "asha:min=1,max=27,factor=3");
    assert_eq!((plan.ranks.get(), plan.timeout), (2, Some(Duration::from_secs(5400))));
    assert_eq!(plan.env["OMP_NUM_THREADS"], "1");
    assert_eq!(
        plan.enqueue[0],
        [("lr".into(), Choice::Number(0.1)), ("optimizer".into(), Choice::Text("adam".into()))]
    );
}

#[test]
fn limits_earlier_studies_and_gpus() {
    let more = "constraints = [\"memory <= 8\"]\nwarm_start = \"runs/earlier\"\ngpus = 2\n[space]";
    let plan = parse(&GOOD.replace("[space]", more)).unwrap();
    assert_eq!(plan.reported(), ["val_loss", "memory"]);
    assert_eq!((plan.limits[0].broken_by(9.0), plan.gpus.map(NonZeroUsize::get)), (1.0, Some(2)));
    assert_eq!(plan.warm_start, [Path::new("runs/earlier")]);
    let told = parse(&GOOD.replace("[space]", "constraints = [\"memory < 8\"]\n[space]")).unwrap_err().message;
    assert_eq!(told, "study.toml:10: `constraints`: must be a text such as \"memory <= 8\", or a list of such texts");
}

/// Trials of the training have checkpoints to go on from; of other programs nobody knows.
#[test]
fn stopped_trials_of_the_training_may_go_on() {
    let stop = |more: &str| {
        let text =
            format!("train = true\nstop = {{ method = \"asha\", max = 9{more} }}\n[space]\nlr = {{ log = [1e-3, 1] }}");
        parse(&text).unwrap().definition.stopper.promotes()
    };
    assert!(stop("") && stop(", promote = true") && !stop(", promote = false"));
    assert!(!parse(GOOD).unwrap().definition.stopper.promotes());
}

#[test]
fn mistakes_are_told_with_their_line() {
    let cases = [
        ("trials    = 200", "trails    = 200", "study.toml:4: unknown key `trails`; did you mean `trials`?"),
        ("trials    = 200", "trials    = 0", "study.toml:4: `trials`: must be a whole number greater than 0"),
        ("[1e-5, 1.0]", "[0, 1.0]", "study.toml:12: parameter `lr`: a logarithmic range starts above 0, not at 0"),
        (
            "[1, 6]",
            "[6, 1]",
            "study.toml:13: parameter `layers`: the range 6 .. 1 is empty; the smaller number comes first",
        ),
        ("int = [1, 6]", "itn = [1, 6]", "study.toml:13: parameter `layers`: unknown key `itn`; did you mean `int`?"),
        (
            "\"1h30m\"",
            "\"soon\"",
            "study.toml:6: `timeout`: must be seconds, or a text such as \"90s\", \"10m\" or \"1h30m\"",
        ),
        ("\"asha\"", "\"asah\"", "study.toml:7: `stop`: unknown way to stop `asah`; did you mean `asha`?"),
        (
            "minimize val_loss",
            "val_loss",
            "study.toml:3: `objective`: `val_loss` is not a direction and a name, such as `minimize val_loss`",
        ),
        ("{layers}", "{layer}", "study.toml:2: `command`: unknown placeholder `layer`; did you mean `layers`?"),
        ("\"--layers={layers}\", ", "", "study.toml:2: `command`: nothing tells the program about {layers}"),
        ("trials    = 200", "train = true", "study.toml:4: `train`: there is a `command`, too; keep one of them"),
        ("objective =", "#", "study.toml: `objective` is missing"),
        ("command   =", "#", "study.toml: `command` is missing"),
        ("ranks     = 2", "sampler = \"tpee\"", "study.toml:5: `sampler`: unknown sampler `tpee`; did you mean `tpe`?"),
    ];
    for (from, to, expected) in cases {
        let refused = parse(&GOOD.replacen(from, to, 1)).unwrap_err();
        assert_eq!(refused.message, expected);
        assert!(!refused.hint.is_empty(), "{expected}");
    }
}

#[test]
fn conditions_that_wait_for_each_other_are_refused() {
    let text = GOOD.replacen("[\"sgd\", \"adam\"]", "{ choice = [\"sgd\", \"adam\"], when = \"momentum > 0.5\" }", 1);
    let refused = parse(&text).unwrap_err();
    assert!(
        refused.message.starts_with("study.toml:1") && refused.message.contains("optimizer"),
        "{}",
        refused.message
    );
    assert!(parse("a = [").unwrap_err().message.starts_with("study.toml:1: "));
    assert!(parse("command = []\nobjective = \"min x\"").unwrap_err().message.contains("[space]"));
}

#[test]
fn a_search_of_the_training_itself_needs_one_line() {
    let plan = StudyPlan::train("lr=log:1e-4..1,batch-size=32|64|128", &["--epochs=2".into()], "lenet").unwrap();
    assert!(matches!(plan.work, TrialWork::Train(_)));
    assert_eq!(plan.definition.objectives[0].to_string(), "minimize test_loss");
    let refused = StudyPlan::train("lr", &[], "lenet").unwrap_err();
    assert!(refused.message.contains("`lr`") && refused.hint.contains("lr=log:1e-4..1"), "{refused:?}");
    let train = GOOD.replacen("command ", "#", 1).replacen("trials    = 200", "train = [\"--epochs\", 3]", 1);
    assert!(matches!(parse(&train).unwrap().work, TrialWork::Train(_)));
}

#[test]
fn durations() {
    for (text, seconds) in [("90", 90.0), ("90s", 90.0), ("1h30m", 5400.0), ("0.5m", 30.0), ("2d", 172_800.0)] {
        assert_eq!(parse_duration(text), Some(Duration::from_secs_f64(seconds)), "{text}");
    }
    for wrong in ["", "0", "-1", "h", "10x", "1h30", "soon"] {
        assert_eq!(parse_duration(wrong), None, "{wrong}");
    }
}

proptest::proptest! {
    #[test]
    fn no_file_makes_the_parser_panic(text in ".{0,200}", at in 0..GOOD.len(), end in 0..GOOD.len()) {
        let _ = parse(&text);
        // A good file with a part of it replaced.
        let cut = |place: usize| (0..=place).rev().find(|&place| GOOD.is_char_boundary(place)).unwrap_or(0);
        let (from, to) = (cut(at.min(end)), cut(at.max(end)));
        let _ = parse(&format!("{}{}{}", &GOOD[..from], text, &GOOD[to..]));
    }
}
