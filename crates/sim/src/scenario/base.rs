//! The base of links and its forms in TOML.

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use std::fmt;

use super::FloatRange;

/// Base of links in seconds: a number, `{ min, max }` (log-uniform), `{ median, sigma }`
/// (lognormal) or `{ uniform = { min, max } }`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LinkBase {
    /// Log-uniform distribution over the range.
    LogUniform(FloatRange),
    /// Uniform distribution (not log-uniform).
    Uniform(FloatRange),
    /// Lognormal distribution of the base.
    Lognormal {
        /// Median in seconds, above 0.
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// The same base for all links.
    Constant(f64),
}

impl<'de> Deserialize<'de> for LinkBase {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(BaseVisitor)
    }
}

/// Distinguishes the forms by their keys, so that an error can name the wrong key (serde's untagged
/// enums only report that no form matched).
struct BaseVisitor;

impl<'de> Visitor<'de> for BaseVisitor {
    type Value = LinkBase;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("base_s as a number, { min, max }, { median, sigma } or { uniform = { min, max } }")
    }

    fn visit_f64<E: Error>(self, base: f64) -> Result<LinkBase, E> {
        Ok(LinkBase::Constant(base))
    }

    fn visit_i64<E: Error>(self, base: i64) -> Result<LinkBase, E> {
        Ok(LinkBase::Constant(base as f64))
    }

    fn visit_u64<E: Error>(self, base: u64) -> Result<LinkBase, E> {
        Ok(LinkBase::Constant(base as f64))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<LinkBase, M::Error> {
        let (mut numbers, mut uniform) = ([None; KEYS.len() - 1], None);
        while let Some(key) = map.next_key::<String>()? {
            match KEYS.iter().position(|known| *known == key) {
                Some(UNIFORM) => uniform = Some(map.next_value::<FloatRange>()?),
                Some(known) => numbers[known] = Some(map.next_value::<f64>()?),
                None => return Err(Error::unknown_field(&key, KEYS)),
            }
        }
        match (numbers, uniform) {
            ([Some(min), Some(max), None, None], None) => Ok(LinkBase::LogUniform(FloatRange { min, max })),
            ([None, None, Some(median), Some(sigma)], None) => Ok(LinkBase::Lognormal { median, sigma }),
            ([None, None, None, None], Some(uniform)) => Ok(LinkBase::Uniform(uniform)),
            ([None, Some(_), None, None], None) => Err(Error::missing_field("min")),
            ([Some(_), None, None, None], None) => Err(Error::missing_field("max")),
            ([None, None, None, Some(_)], None) => Err(Error::missing_field("median")),
            ([None, None, Some(_), None], None) => Err(Error::missing_field("sigma")),
            _ => Err(Error::custom("base_s needs either min and max, or median and sigma, or uniform")),
        }
    }
}

/// All keys of the forms. The value of the last key is a table.
const KEYS: &[&str] = &["min", "max", "median", "sigma", "uniform"];
const UNIFORM: usize = 4;
