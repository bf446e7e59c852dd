//! Where in a job a process is, and how it meets the others: from variables alone, as a pure function.

use std::net::SocketAddr;

use sirtaki_comm::{Rank, secure::Secret};

use super::{
    JobError, Lookup,
    parse::{optional, required},
    variables as v,
};

/// A number among others, from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Which one.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
}

/// How the processes of a job come together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meeting {
    /// There is nobody else.
    Alone,
    /// In a store that the launcher serves.
    Store {
        /// Where it listens.
        address: SocketAddr,
        /// What it wants proven.
        secret: Secret,
    },
}

/// A process's place in a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Which process this is.
    pub rank: Rank,
    /// How many there are.
    pub size: usize,
    /// Which process of its host it is; `None` where nobody has said so.
    pub local: Option<Position>,
    /// Which host of the job it is on; `None` where nobody has said so.
    pub cross: Option<Position>,
    /// How they come together.
    pub meeting: Meeting,
}

/// This process's place: the one its variables give it, or a world of one.
pub fn discover(get: Lookup<'_>) -> Result<Place, JobError> {
    let given = [v::RANK, v::SIZE, v::STORE, v::LOCAL_RANK, v::LOCAL_SIZE, v::CROSS_RANK, v::CROSS_SIZE];
    if given.iter().any(|name| super::parse::text(get, name).is_some()) {
        return by_sirtaki(get);
    }
    let one = Some(Position { rank: 0, size: 1 });
    Ok(Place { rank: 0, size: 1, local: one, cross: one, meeting: Meeting::Alone })
}

/// The place that `sirtaki run` gave.
fn by_sirtaki(get: Lookup<'_>) -> Result<Place, JobError> {
    let size = required(get, v::SIZE, |text| text.parse().ok().filter(|&size: &usize| size > 0))?;
    let rank = required(get, v::RANK, |text| text.parse().ok().filter(|&rank| rank < size))?;
    let address = required(get, v::STORE, |text| text.strip_prefix("tcp://")?.parse().ok())?;
    let secret = required(get, v::SECRET, |text| Secret::from_hex(text).ok())?;
    let position = |rank_name, size_name| -> Result<Option<Position>, JobError> {
        let Some(size) = optional(get, size_name, |text| text.parse().ok().filter(|s| (1..=size).contains(s)))? else {
            return Ok(None);
        };
        let rank = required(get, rank_name, |text| text.parse().ok().filter(|&rank| rank < size))?;
        Ok(Some(Position { rank, size }))
    };
    let (local, cross) = (position(v::LOCAL_RANK, v::LOCAL_SIZE)?, position(v::CROSS_RANK, v::CROSS_SIZE)?);
    Ok(Place { rank, size, local, cross, meeting: Meeting::Store { address, secret } })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    /// A job's variables with some of them changed.
    fn with(changes: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let job = [(v::RANK, "1"), (v::SIZE, "4"), (v::STORE, "tcp://127.0.0.1:7000"), (v::SECRET, HEX)];
        let mut all: Vec<(String, String)> = job.map(|(name, value)| (name.into(), value.into())).to_vec();
        for (name, value) in changes {
            all.retain(|(known, _)| known != name);
            all.push(((*name).into(), (*value).into()));
        }
        move |name| all.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn a_launcher_s_variables_are_a_place() {
        let place = discover(&with(&[(v::LOCAL_RANK, "0"), (v::LOCAL_SIZE, "2")])).unwrap();
        assert_eq!((place.rank, place.size, place.cross), (1, 4, None));
        assert_eq!(place.local, Some(Position { rank: 0, size: 2 }));
        let secret = Secret::from_hex(HEX).unwrap();
        assert_eq!(place.meeting, Meeting::Store { address: "127.0.0.1:7000".parse().unwrap(), secret });
    }

    #[test]
    fn mistakes_name_the_variable_the_value_and_what_is_allowed() {
        let wrong = [
            (v::RANK, "4"),
            (v::RANK, "-1"),
            (v::SIZE, "0"),
            (v::STORE, "127.0.0.1:7000"),
            (v::STORE, "tcp://nowhere"),
        ];
        for (name, value) in wrong {
            let error = discover(&with(&[(name, value)])).unwrap_err();
            assert_eq!(error.to_string(), format!("{name} is `{value}`, but must be {}", v::allowed(name)));
        }
    }

    #[test]
    fn a_bad_secret_is_not_repeated() {
        let error = discover(&with(&[(v::SECRET, "hunter2")])).unwrap_err().to_string();
        assert!(!error.contains("hunter2") && error.contains("64 hexadecimal digits"), "{error}");
    }

    #[test]
    fn what_must_be_set_is_asked_for() {
        for name in [v::RANK, v::SIZE, v::STORE, v::SECRET] {
            let error = discover(&with(&[(name, "")])).unwrap_err().to_string();
            assert_eq!(error, format!("{name} is not set; it must be {}", v::allowed(name)));
        }
    }
}
