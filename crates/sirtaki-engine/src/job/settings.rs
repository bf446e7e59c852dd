//! What variables configure about communication and the engine. Those that are not set leave the defaults.

use sirtaki_comm::{collective::Algorithm, secure::Secret};

use super::{
    JobError, Lookup,
    parse::{bytes, bytes_or_off, optional, seconds, seconds_or_off, switch, text},
    variables as v,
};
use crate::{Profiling, TimelineForm, Way};

/// What was chosen about communication, for a job with this secret.
pub fn communication(get: Lookup<'_>, secret: Secret) -> Result<sirtaki_comm::Settings, JobError> {
    let mut settings = sirtaki_comm::Settings::new(secret);
    set(&mut settings.timeout, optional(get, v::TIMEOUT, |text| seconds(text).ok())?);
    set(&mut settings.start_timeout, optional(get, v::START_TIMEOUT, |text| seconds(text).ok())?);
    set(&mut settings.algorithm, optional(get, v::ALGORITHM, algorithm)?);
    set(&mut settings.tls, optional(get, v::TLS, switch)?);
    set(&mut settings.interface, optional(get, v::INTERFACE, |text| Some(Some(text.to_owned())))?);
    set(&mut settings.shared_memory, optional(get, v::SHM, switch)?);
    Ok(settings)
}

/// What was chosen about the engine.
pub fn engine(get: Lookup<'_>) -> Result<crate::Settings, JobError> {
    let mut settings = crate::Settings::default();
    set(&mut settings.limits.fused, optional(get, v::FUSION, bytes_or_off)?);
    set(&mut settings.limits.large, optional(get, v::FUSION_LARGE, |text| bytes(text).ok())?);
    set(&mut settings.adopt, optional(get, v::ADOPT, switch)?);
    set(&mut settings.warn_after, optional(get, v::WARN_AFTER, seconds_or_off)?);
    set(&mut settings.hang_timeout, optional(get, v::HANG_TIMEOUT, seconds_or_off)?);
    set(&mut settings.device.way, optional(get, v::GPU, way)?);
    set(&mut settings.device.nccl, optional(get, v::NCCL, |text| Some(Some(text.into())))?);
    set(&mut settings.device.nvml, optional(get, v::NVML, |text| Some(Some(text.into())))?);
    set(&mut settings.device.driver, optional(get, v::CUDA, |text| Some(Some(text.into())))?);
    set(&mut settings.timeline, optional(get, v::TIMELINE, |text| Some(Some(text.into())))?);
    if settings.timeline.is_none()
        && let Some(path) = text(get, v::HOROVOD_TIMELINE)
    {
        let cycles = optional(get, v::HOROVOD_TIMELINE_MARK_CYCLES, switch)?.unwrap_or(false);
        settings.timeline_form = TimelineForm::Horovod { cycles };
        settings.timeline = Some(path).filter(|path| path != "DYNAMIC").map(Into::into);
    }
    set(&mut settings.timeline_limit, optional(get, v::TIMELINE_LIMIT, |text| Some(bytes(text).ok()? as u64))?);
    set(&mut settings.run_folder, optional(get, v::RUN_FOLDER, |text| Some(Some(text.into())))?);
    set(&mut settings.tensorboard, optional(get, v::TENSORBOARD, |text| Some(Some(text.into())))?);
    set(&mut settings.profile, optional(get, v::PROFILE, |text| Some(profiling(text)))?);
    Ok(settings)
}

/// A switch, or else a file.
fn profiling(text: &str) -> Option<Profiling> {
    match switch(text) {
        Some(wanted) => wanted.then_some(Profiling::Said),
        None => Some(Profiling::File(text.into())),
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn algorithm(text: &str) -> Option<Option<Algorithm>> {
    if text == "auto" { Some(None) } else { text.parse().ok().map(Some) }
}

fn way(text: &str) -> Option<Option<Way>> {
    let known = Way::ALL.into_iter().find(|way| way.name() == text);
    if text == "auto" { Some(None) } else { known.map(Some) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn secret() -> Secret {
        Secret::from_hex(&"0f".repeat(32)).unwrap()
    }

    fn table<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn every_choice_about_communication_is_taken() {
        let variables = [
            (v::TIMEOUT, "2.5"),
            (v::START_TIMEOUT, "7"),
            (v::ALGORITHM, "ring"),
            (v::TLS, "yes"),
            (v::INTERFACE, "eth0"),
            (v::SHM, "OFF"),
        ];
        let settings = communication(&table(&variables), secret()).unwrap();
        assert_eq!(settings.timeout, Duration::from_millis(2500));
        assert_eq!(settings.start_timeout, Duration::from_secs(7));
        assert_eq!(settings.algorithm, Some(Algorithm::Ring));
        assert!(settings.tls && !settings.shared_memory);
        assert_eq!(settings.interface.as_deref(), Some("eth0"));
    }

    #[test]
    fn every_choice_about_the_engine_is_taken() {
        let variables = [
            (v::FUSION, "4M"),
            (v::FUSION_LARGE, "1000"),
            (v::ADOPT, "0"),
            (v::WARN_AFTER, "off"),
            (v::HANG_TIMEOUT, "30"),
            (v::GPU, "staged"),
            (v::NCCL, "/n.so"),
        ];
        let settings = engine(&table(&variables)).unwrap();
        assert_eq!(settings.limits, crate::decide::fuse::Limits { fused: 4 << 20, large: 1000 });
        assert!(!settings.adopt);
        assert_eq!((settings.device.way, settings.device.nccl), (Some(Way::Staged), Some("/n.so".into())));
        assert_eq!((settings.warn_after, settings.hang_timeout), (None, Some(Duration::from_secs(30))));
    }

    #[test]
    fn every_choice_about_telemetry_is_taken() {
        let seen = |variables: &[(&str, &str)]| {
            let settings = engine(&table(variables)).unwrap();
            (settings.timeline, settings.timeline_limit, settings.profile)
        };
        let ours = [(v::TIMELINE, "/a/t.json"), (v::HOROVOD_TIMELINE, "/b"), (v::TIMELINE_LIMIT, "1M")];
        assert_eq!(seen(&ours), (Some("/a/t.json".into()), 1 << 20, None));
        assert_eq!(seen(&[(v::HOROVOD_TIMELINE, "/b")]).0, Some("/b".into()));
        assert_eq!(seen(&[(v::HOROVOD_TIMELINE, "DYNAMIC"), (v::PROFILE, "no")]), (None, 256 << 20, None));
        let form = |variables: &[(&str, &str)]| engine(&table(variables)).unwrap().timeline_form;
        assert_eq!(form(&ours), TimelineForm::Ranks);
        assert_eq!(form(&[(v::HOROVOD_TIMELINE, "DYNAMIC")]), TimelineForm::Horovod { cycles: false });
        let marked = [(v::HOROVOD_TIMELINE, "/b"), (v::HOROVOD_TIMELINE_MARK_CYCLES, "1")];
        assert_eq!(form(&marked), TimelineForm::Horovod { cycles: true });
        assert_eq!(seen(&[(v::PROFILE, "1")]).2, Some(Profiling::Said));
        assert_eq!(engine(&table(&[(v::TENSORBOARD, "/e")])).unwrap().tensorboard, Some("/e".into()));
        assert_eq!(seen(&[(v::PROFILE, "p.json")]).2, Some(Profiling::File("p.json".into())));
    }

    #[test]
    fn what_is_not_set_or_empty_keeps_its_default() {
        let settings = communication(&table(&[(v::TIMEOUT, " "), (v::ALGORITHM, "auto")]), secret()).unwrap();
        assert_eq!(format!("{settings:?}"), format!("{:?}", sirtaki_comm::Settings::new(secret())));
        assert_eq!(format!("{:?}", engine(&|_| None).unwrap()), format!("{:?}", crate::Settings::default()));
    }

    #[test]
    fn mistakes_name_the_variable_the_value_and_what_is_allowed() {
        let wrong = [
            (v::TIMEOUT, "0"),
            (v::TIMEOUT, "nan"),
            (v::START_TIMEOUT, "soon"),
            (v::ALGORITHM, "rnig"),
            (v::TLS, "perhaps"),
            (v::SHM, "2"),
            (v::FUSION, "-1"),
            (v::FUSION_LARGE, "off"),
            (v::ADOPT, "maybe"),
            (v::WARN_AFTER, "-3"),
            (v::HANG_TIMEOUT, "never"),
            (v::TIMELINE_LIMIT, "much"),
            (v::GPU, "ncll"),
        ];
        for (name, value) in wrong {
            let variables = [(name, value)];
            let get = table(&variables);
            let error = communication(&get, secret()).err().or(engine(&get).err()).unwrap();
            assert_eq!(error.to_string(), format!("{name} is `{value}`, but must be {}", v::allowed(name)));
            assert!(error.hint().is_some());
        }
    }
}
