//! Numbers of the file. R9: what cannot be used is refused, and shown only when it is a number.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde_json::json;

use crate::engine::settings::WAIT_MAX;

/// What a numeric field takes.
struct Rule {
    /// In words, after "write".
    wanted: &'static str,
    /// Whether the field takes this number.
    takes: fn(f64) -> bool,
    /// A text as a number.
    parse: fn(&str) -> Option<f64>,
    /// What a JSON Schema says of a number: its type, the kind of its lower bound, the bound.
    number: (&'static str, &'static str, u8),
    /// What a JSON Schema says of a text.
    pattern: &'static str,
}

const INTERVAL: Rule = Rule {
    wanted: "a number of milliseconds above 0",
    takes: |value| value > 0.0 && value.is_finite(),
    parse: decimal,
    number: ("number", "exclusiveMinimum", 0),
    pattern: r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$|\$\{",
};
const CAP: Rule = Rule {
    wanted: "a number of milliseconds above 0, or \"Infinity\"",
    takes: |value| value > 0.0,
    pattern: r"^\s*([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|Infinity)\s*$|\$\{",
    ..INTERVAL
};
const MILLIS: Rule = Rule {
    wanted: "a number of milliseconds, 0 or more",
    takes: |value| value >= 0.0 && value.is_finite(),
    number: ("number", "minimum", 0),
    ..INTERVAL
};
const COUNT: Rule = Rule {
    wanted: "a whole number, 1 or more",
    takes: |value| (1.0..=MAX_WHOLE).contains(&value) && value.fract() == 0.0,
    number: ("integer", "minimum", 1),
    ..INTERVAL
};
const RATIO: Rule = Rule {
    wanted: "a number from 0 to 1",
    takes: |value| (0.0..=1.0).contains(&value),
    number: ("number", "minimum", 0),
    ..INTERVAL
};
const SIZE: Rule = Rule {
    wanted: "a number of bytes, or one with KiB, MiB or GiB",
    parse: bytes,
    pattern: r"^\s*(\d+\.?\d*|\.\d+)\s*([KMG]iB)?\s*$|\$\{",
    ..COUNT
};

/// 2^53, up to which every whole number is exact.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $rule:expr, $make:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(super) struct $name(pub(super) $inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Number(&$rule)).map($make).map(Self)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $rule.schema()
            }
        }
    };
}

number!(
    /// R9: `reconnectIntervalMs`.
    Interval(Duration),
    INTERVAL,
    above_zero
);
number!(
    /// R9: `reconnectMaxIntervalMs`, which may be without end.
    Cap(Duration),
    CAP,
    above_zero
);
number!(
    /// A threshold or a timeout; no timer waits longer than its limit (R2).
    Millis(Duration),
    MILLIS,
    |millis| duration(millis).min(WAIT_MAX)
);
number!(
    /// A count or a limit.
    Count(u64),
    COUNT,
    whole
);
number!(
    /// A share of all.
    Ratio(f64),
    RATIO,
    |share| share
);
number!(
    /// A number of bytes.
    Size(u64),
    SIZE,
    whole
);

impl Rule {
    fn schema(&self) -> Schema {
        let (kind, bound, least) = self.number;
        let number = json!({ "type": kind, bound: least });
        let text = json!({ "type": "string", "pattern": self.pattern });
        json_schema!({ "description": format!("Write {}.", self.wanted), "anyOf": [number, text] })
    }
}

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
    if text == "Infinity" {
        return Some(f64::INFINITY);
    }
    text.chars().all(legal).then(|| text.parse().ok()).flatten()
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

struct Number(&'static Rule);

impl Visitor<'_> for Number {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.wanted)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
        let unusable = || E::invalid_value(Unexpected::Float(value), &self);
        (self.0.takes)(value).then_some(value).ok_or_else(unusable)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
        let value = (self.0.parse)(text).filter(|value| (self.0.takes)(*value));
        value.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
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
