//! What connects hosts, as people say it: `flat`, `fat-tree:4`, `rails:8`, `wide-area:1Gbit,20ms,16`.

use std::str::FromStr;

use super::quantities::{bandwidth, latency};

/// Hosts of a leaf switch, unless a number is given.
const LEAF: usize = 32;

/// What connects hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fabric {
    /// All links can be used at once.
    Flat,
    /// So many hosts share up-links with the bandwidth of all their links divided by a factor.
    FatTree {
        /// How many times the links are faster than the up-links.
        oversubscription: f64,
        /// Hosts that share up-links.
        hosts: usize,
    },
    /// So many links of each host, of which a stream uses one.
    Rails(usize),
    /// Sites of so many hosts, with a link of its own for each site.
    WideArea {
        /// Bytes per second out of a site, and as many into it.
        bandwidth: f64,
        /// Seconds of a message between sites.
        latency: f64,
        /// Hosts of a site.
        hosts: usize,
    },
}

impl FromStr for Fabric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let parts: Vec<&str> = rest.into_iter().flat_map(|rest| rest.split(',')).map(str::trim).collect();
        match (name, &parts[..]) {
            ("flat", []) => Ok(Self::Flat),
            ("fat-tree", [factor]) => Ok(Self::FatTree { oversubscription: at_least_one(factor)?, hosts: LEAF }),
            ("fat-tree", [factor, hosts]) => {
                Ok(Self::FatTree { oversubscription: at_least_one(factor)?, hosts: count(hosts)? })
            }
            ("rails", [number]) => Ok(Self::Rails(count(number)?)),
            ("wide-area", [rate, delay, hosts]) => {
                Ok(Self::WideArea { bandwidth: bandwidth(rate)?, latency: latency(delay)?, hosts: count(hosts)? })
            }
            _ => Err(format!(
                "`{text}` is not a topology; write flat, fat-tree:4 (or fat-tree:4,16 with 16 hosts a switch), rails:8, \
                 or wide-area:1Gbit,20ms,16"
            )),
        }
    }
}

fn count(text: &str) -> Result<usize, String> {
    super::at_least_one(text).map(Into::into).map_err(|_| format!("`{text}` must be a whole number from 1"))
}

fn at_least_one(text: &str) -> Result<f64, String> {
    super::number(text, |number| number >= 1.0, "an oversubscription of at least 1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topologies_are_typed_with_their_numbers() {
        let parse = |text: &str| text.parse::<Fabric>();
        assert_eq!(parse("flat"), Ok(Fabric::Flat));
        assert_eq!(parse("fat-tree:2.5"), Ok(Fabric::FatTree { oversubscription: 2.5, hosts: LEAF }));
        assert_eq!(parse("fat-tree:4,16"), Ok(Fabric::FatTree { oversubscription: 4.0, hosts: 16 }));
        assert_eq!(parse("rails:8"), Ok(Fabric::Rails(8)));
        let wide = Fabric::WideArea { bandwidth: 125e6, latency: 0.02, hosts: 16 };
        assert_eq!(parse("wide-area:1Gbit,20ms,16"), Ok(wide));
        for wrong in ["", "torus", "fat-tree", "fat-tree:0.5", "rails:0", "wide-area:1Gbit", "flat:1", "rails:x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
