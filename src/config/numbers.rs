//! Numbers of the file. R9: what cannot be used is refused, and shown only when it is a number.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use crate::engine::settings::WAIT_MAX;

/// What a numeric field takes.
trait Rule {
    /// In words, after "write".
    const WANTED: &'static str;
    /// The JSON Schema's name, and what a number must be.
    const NAME: &'static str;

    /// Whether the field takes this number.
    fn takes(value: f64) -> bool;

    /// What a JSON Schema says of a number, and the pattern of a text that reads as one.
    fn schema() -> (serde_json::Value, &'static str);

    /// A text as a number.
    fn parse(text: &str) -> Option<f64> {
        decimal(text)
    }
}

macro_rules! number {
    (
        $(#[$doc:meta])*
        $name:ident($inner:ty), $wanted:literal, $takes:expr, $make:expr, $schema:tt
        $(, $pattern:expr, $parse:path)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(super) struct $name(pub(super) $inner);

        impl Rule for $name {
            const WANTED: &'static str = $wanted;
            const NAME: &'static str = stringify!($name);

            fn takes(value: f64) -> bool {
                $takes(value)
            }

            fn schema() -> (serde_json::Value, &'static str) {
                #[allow(unused_variables, reason = "shadowed where the field has a pattern of its own")]
                let pattern = DECIMAL;
                $(let pattern = $pattern;)?
                (serde_json::json!($schema), pattern)
            }

            $(fn parse(text: &str) -> Option<f64> {
                $parse(text)
            })?
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = deserializer.deserialize_any(Number::<Self>(std::marker::PhantomData))?;
                Ok(Self($make(value)))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                Self::NAME.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let (number, pattern) = Self::schema();
                let text = serde_json::json!({ "type": "string", "pattern": pattern });
                json_schema!({ "description": format!("Write {}.", Self::WANTED), "anyOf": [number, text] })
            }
        }
    };
}

number!(
    /// R9: `reconnectIntervalMs`.
    Interval(Duration),
    "a number of milliseconds above 0",
    |value: f64| value > 0.0 && value.is_finite(),
    above_zero,
    { "type": "number", "exclusiveMinimum": 0 }
);
number!(
    /// R9: `reconnectMaxIntervalMs`, which may be without end.
    Cap(Duration),
    "a number of milliseconds above 0, or \"Infinity\"",
    |value: f64| value > 0.0,
    above_zero,
    { "type": "number", "exclusiveMinimum": 0 }
);
number!(
    /// A threshold or a timeout; a timer's limit is its own (R2).
    Millis(Duration),
    "a number of milliseconds, 0 or more",
    |value: f64| value >= 0.0 && value.is_finite(),
    |value| duration(value).min(WAIT_MAX),
    { "type": "number", "minimum": 0 }
);
number!(
    /// A count or a limit.
    Count(u64),
    "a whole number, 1 or more",
    |value: f64| (1.0..=MAX_WHOLE).contains(&value) && value.fract() == 0.0,
    whole,
    { "type": "integer", "minimum": 1 }
);

number!(
    /// A number of bytes.
    Size(u64),
    "a number of bytes, or one with KiB, MiB or GiB",
    |value: f64| (1.0..=MAX_WHOLE).contains(&value) && value.fract() == 0.0,
    whole,
    { "type": "integer", "minimum": 1 },
    r"^\s*\d+\s*([KMG]iB)?\s*$|\$\{",
    bytes
);

/// A decimal number, trimmed, or a variable that becomes one.
const DECIMAL: &str = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$|^\s*Infinity\s*$|\$\{";

/// 2^53, up to which every whole number is exact.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Milliseconds as a duration, the longest there is where they are too many.
fn duration(millis: f64) -> Duration {
    Duration::try_from_secs_f64(millis / 1000.0).unwrap_or(Duration::MAX)
}

/// Never zero: a wait that cannot double would retry without pause.
fn above_zero(millis: f64) -> Duration {
    duration(millis).max(Duration::from_nanos(1))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be whole and between 1 and 2^53"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

/// A text that reads as a decimal number, trimmed; no unit, no hex.
fn decimal(text: &str) -> Option<f64> {
    let text = text.trim();
    let legal = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | 'e' | 'E');
    match text {
        "Infinity" => Some(f64::INFINITY),
        _ if text.chars().all(legal) => text.parse().ok(),
        _ => None,
    }
}

/// As [`decimal`], with a unit of bytes.
fn bytes(text: &str) -> Option<f64> {
    let text = text.trim();
    let units = [
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
    ];
    let unit = units
        .iter()
        .find_map(|(unit, size)| text.strip_suffix(unit).map(|number| (number, size)));
    unit.map_or_else(
        || decimal(text),
        |(number, size)| decimal(number).map(|number| number * size),
    )
}

struct Number<R>(std::marker::PhantomData<R>);

impl<R: Rule> Number<R> {
    fn check<E: Error>(value: f64) -> Result<f64, E> {
        if R::takes(value) {
            return Ok(value);
        }
        Err(E::custom(format_args!(
            "write {}; this is {value}",
            R::WANTED
        )))
    }
}

impl<R: Rule> Visitor<'_> for Number<R> {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(R::WANTED)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
        Self::check(value)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
        let unusable = || E::invalid_type(serde::de::Unexpected::Str(text), &self);
        let value = R::parse(text).ok_or_else(unusable)?;
        R::takes(value).then_some(value).ok_or_else(unusable)
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::read;
    use super::super::tree::Node;
    use super::*;

    fn one<T: serde::de::DeserializeOwned>(value: &str) -> Result<T, String> {
        let (read, faults) = read(&Node::parse(&format!("[{value}]")).unwrap());
        let list: Option<Vec<T>> = read;
        match faults.into_iter().next() {
            Some(fault) => Err(fault.message),
            None => Ok(list.unwrap().remove(0)),
        }
    }

    fn interval(value: &str) -> Result<Duration, String> {
        one::<Interval>(value).map(|interval| interval.0)
    }

    fn cap(value: &str) -> Result<Duration, String> {
        one::<Cap>(value).map(|cap| cap.0)
    }

    #[test]
    fn r9_an_interval_is_a_number_above_zero_or_reads_as_one() {
        for (value, millis) in [
            ("5000", 5000),
            ("\"5000\"", 5000),
            ("\" 250 \"", 250),
            ("5e3", 5000),
            ("'1.5e1'", 15),
        ] {
            assert_eq!(
                interval(value),
                Ok(Duration::from_millis(millis)),
                "{value}"
            );
        }
        assert_eq!(interval("0.5"), Ok(Duration::from_micros(500)));
        assert_eq!(interval("1e-30"), Ok(Duration::from_nanos(1)));
        assert_eq!(interval("1e300"), Ok(Duration::MAX));
    }

    #[test]
    fn r9_what_is_no_interval_is_refused() {
        let bad = [
            "0",
            "-5",
            ".nan",
            ".inf",
            "-.inf",
            "true",
            "false",
            "\"\"",
            "\"  \"",
            "\"5s\"",
            "0x10",
            "\"0x10\"",
            "\"Infinity\"",
            "\"NaN\"",
            "\"inf\"",
            "\"0\"",
            "\"-5\"",
            "1_000",
            "[5]",
            "{a: 5}",
            "\"5000 ms\"",
            "\"1e999\"",
            "\"true\"",
        ];
        for value in bad {
            let refused = interval(value).unwrap_err();
            assert!(
                refused.starts_with("write a number of milliseconds above 0; this is "),
                "{value}: {refused}"
            );
        }
    }

    #[test]
    fn r9_the_cap_may_be_infinity() {
        for value in ["\"Infinity\"", "' Infinity '", ".inf", "1e300"] {
            assert_eq!(cap(value), Ok(Duration::MAX), "{value}");
        }
        for value in [
            "0",
            "\"-Infinity\"",
            "-.inf",
            ".nan",
            "true",
            "\"infinity\"",
            "\"\"",
        ] {
            assert!(cap(value).is_err(), "{value}");
        }
    }

    #[test]
    fn r9_a_refused_value_is_shown_only_when_it_is_a_number() {
        assert!(interval("-5").unwrap_err().ends_with("this is -5"));
        assert!(
            interval("hunter2-secret")
                .unwrap_err()
                .ends_with("this is a string")
        );
        assert!(
            interval("\"-5\"")
                .unwrap_err()
                .ends_with("this is a string")
        );
        assert!(
            interval("\"\"")
                .unwrap_err()
                .ends_with("this is an empty string")
        );
        assert!(interval("true").unwrap_err().ends_with("this is a boolean"));
    }

    #[test]
    fn r9_timeouts_may_be_zero_and_counts_may_not() {
        assert_eq!(one::<Millis>("0").unwrap().0, Duration::ZERO);
        assert_eq!(one::<Millis>("1e300").unwrap().0, WAIT_MAX);
        assert_eq!(one::<Count>("\"7\"").unwrap().0, 7);
        for value in ["-1", ".nan", "\"Infinity\"", "true", "x"] {
            assert!(one::<Millis>(value).is_err(), "{value}");
        }
        for value in ["0", "-1", "1.5", ".inf", "true", "\"\"", "1e300"] {
            assert!(one::<Count>(value).is_err(), "{value}");
        }
    }

    #[test]
    fn a_size_takes_a_unit_of_bytes() {
        assert_eq!(one::<Size>("1GiB").unwrap().0, 1 << 30);
        assert_eq!(one::<Size>("\"1.5 KiB\"").unwrap().0, 1536);
        assert_eq!(one::<Size>("4096").unwrap().0, 4096);
        for value in ["0", "1GB", "GiB", "-1KiB", "1.0001KiB"] {
            assert!(one::<Size>(value).is_err(), "{value}");
        }
    }
}
