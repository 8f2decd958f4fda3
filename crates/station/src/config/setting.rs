//! A setting: its key, type, default, range and documentation, each stated once.

use super::value::Value;
use super::{ConfigError, PREFIX};

/// A key with the functions that read and show its value. `C` is the struct that contains all
/// fields of the table.
pub(super) struct Setting<C> {
    pub(super) key: &'static str,
    pub(super) applies: Applies,
    pub(super) read: fn(&mut C, &Value<'_>) -> Result<(), String>,
    pub(super) shown: fn(&C) -> Option<String>,
    #[cfg(test)]
    pub(super) documentation: Documentation,
}

#[cfg(test)]
pub(super) struct Documentation {
    pub(super) lines: &'static [&'static str],
    /// At most one example, in TOML.
    pub(super) example: &'static [&'static str],
    pub(super) range: fn() -> Option<String>,
}

impl<C> Setting<C> {
    /// Name of the key's table; empty for keys outside of tables.
    pub(super) fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }

    /// Name of the key in its table.
    #[cfg(test)]
    pub(super) fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }

    /// Name of the environment variable of the key.
    pub(super) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.replace('.', "_").to_ascii_uppercase())
    }
}

/// Sets one key to a value.
///
/// # Errors
/// The values that the key accepts, or the most similar key if the key is unknown.
pub(super) fn set<C>(
    tables: &[&[Setting<C>]],
    config: &mut C,
    key: &str,
    value: Value<'_>,
    location: &str,
) -> Result<(), ConfigError> {
    let settings = tables.iter().copied().flatten();
    match settings.clone().find(|setting| setting.key == key) {
        Some(setting) => {
            (setting.read)(config, &value).map_err(|message| ConfigError::of_key(location, key, &message))
        }
        None => {
            let nearest = nearest(key, settings.map(|setting| setting.key));
            let hint = nearest.map(|key| format!("; did you mean `{key}`?")).unwrap_or_default();
            Err(ConfigError(format!("{location}: unknown key `{key}`{hint}")))
        }
    }
}

/// The known key most similar to `key`, if it is similar enough.
fn nearest(key: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    // Compare only the first 64 characters: computing the distance takes quadratic time, and no
    // known key is longer.
    let key: String = key.chars().take(64).collect();
    let by_distance = known.map(|candidate| (strsim::levenshtein(&key, candidate), candidate));
    by_distance.min().filter(|(distance, _)| *distance <= usize::max(1, key.len() / 4)).map(|(_, key)| key)
}

/// Time at which a changed setting takes effect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Applies {
    /// As soon as the configuration is read again.
    AtOnce,
    /// At the next start of the station.
    AtStart,
}

/// Declares a struct of settings: fields with their defaults, and `SETTINGS` with their keys.
///
/// The first line is the path from the whole configuration to the struct. Each field is
/// `name: type = default`, then its key, its [`SettingKind`](super::kind::SettingKind), the time at
/// which it [`Applies`], and an example if the default cannot be shown. Fields after `and` have no
/// key. The documentation of a field is that of its key in `docs/barograph.toml`.
macro_rules! settings {
    (
        |$config:ident: $root:ty| $place:expr;
        $(#[doc = $about:literal])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $field:ident: $type:ty = $default:expr =>
                    $key:literal, $kind:expr, $applies:ident $(, example $example:expr)?;
            )*
        }
        $(and {
            $( $(#[doc = $plain_doc:literal])* $plain:ident: $plain_type:ty = $plain_default:expr; )*
        })?
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $( $(#[doc = $doc])* $vis $field: $type, )*
            $( $( $(#[doc = $plain_doc])* $vis $plain: $plain_type, )* )?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $( $field: $default, )*
                    $( $( $plain: $plain_default, )* )?
                }
            }
        }

        impl $name {
            #[cfg(test)]
            pub(in crate::config) const ABOUT: &[&str] = &[$($about),*];

            pub(in crate::config) const SETTINGS: &[$crate::config::setting::Setting<$root>] = &[
                $( $crate::config::setting::Setting {
                    key: $key,
                    applies: $crate::config::setting::Applies::$applies,
                    read: |$config: &mut $root, value: &$crate::config::value::Value<'_>| {
                        ($kind.read)(value).map(|read| $place.$field = read)
                    },
                    shown: |$config: &$root| ($kind.shown)(&$place.$field),
                    #[cfg(test)]
                    documentation: $crate::config::setting::Documentation {
                        lines: &[$($doc),*],
                        example: &[$(stringify!($example))?],
                        range: || {
                            let kind: $crate::config::kind::SettingKind<$type> = $kind;
                            kind.range
                        },
                    },
                }, )*
            ];
        }
    };
}
pub(super) use settings;
