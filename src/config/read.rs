//! From the tree to the types of `file`, through serde. It turns each fault into a place, a path and what to write
//! instead, and goes on behind it: one reading finds them all. It never shows a value that is not a number.

use std::fmt::{self, Display};

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer as _,
    MapAccess, SeqAccess, Unexpected, Visitor,
};

use super::tree::{Key, Node, Step, Value};

/// As many faults of one object are reported.
const FAULTS_MAX: usize = 100;

/// Something that could not be read.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// From the node that was read.
    pub(super) path: Vec<Step>,
    pub(super) message: String,
    /// The key is at fault rather than its value.
    pub(super) at_key: bool,
}

/// Reads a node whole. What is at fault is left out of the value, which is `None` where the node itself is.
pub(super) fn read<T: DeserializeOwned>(node: &Node) -> (Option<T>, Vec<Fault>) {
    let (mut rest, mut faults) = (node.clone(), Vec::new());
    while faults.len() < FAULTS_MAX {
        match T::deserialize(Reader(&rest)) {
            Ok(value) => return (Some(value), faults),
            Err(fault) => {
                let went_on = !fault.path.is_empty() && rest.cut(&fault.path);
                faults.push(fault);
                if !went_on {
                    break;
                }
            }
        }
    }
    (None, faults)
}

/// The nearest of some names, where one is near enough to be a slip of the pen.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let distance = |other: &str| strsim::osa_distance(&lower, &other.to_lowercase());
    let (best, off) = known
        .iter()
        .map(|other| (*other, distance(other)))
        .min_by_key(|(_, off)| *off)?;
    (off <= 1 + name.chars().count() / 4).then_some(best)
}

impl Fault {
    fn new(message: String) -> Self {
        Self {
            path: Vec::new(),
            message,
            at_key: false,
        }
    }

    fn under(mut self, step: Step) -> Self {
        self.path.insert(0, step);
        self
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl serde::de::Error for Fault {
    fn custom<T: Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = expected.to_string();
        let expected = match expected.as_str() {
            "a sequence" => "a list",
            "a map" => "an object",
            "a boolean" => "true or false",
            other => other,
        };
        Self::new(format!("write {expected}; this is {}", kind(unexpected)))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("write one of {}", list(expected)))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let hint = nearest(field, expected).map_or_else(
            || "take it out".to_owned(),
            |name| format!("did you mean `{name}`?"),
        );
        Self {
            at_key: true,
            ..Self::new(format!("nobody defines a field `{field}`; {hint}"))
        }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("add `{field}`, which is missing"))
    }
}

/// A value by its kind alone, except numbers (R9: a secret may stand in the wrong field).
fn kind(unexpected: Unexpected<'_>) -> String {
    match unexpected {
        Unexpected::Float(value) => value.to_string(),
        Unexpected::Unsigned(value) => value.to_string(),
        Unexpected::Signed(value) => value.to_string(),
        Unexpected::Bool(_) => "a boolean".to_owned(),
        Unexpected::Str("") => "an empty string".to_owned(),
        Unexpected::Str(_) => "a string".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "an object".to_owned(),
        Unexpected::Unit => "empty".to_owned(),
        Unexpected::Other(what) => what.to_owned(),
        // Not in a file.
        Unexpected::Char(_)
        | Unexpected::Bytes(_)
        | Unexpected::Option
        | Unexpected::NewtypeStruct
        | Unexpected::Enum
        | Unexpected::UnitVariant
        | Unexpected::NewtypeVariant
        | Unexpected::TupleVariant
        | Unexpected::StructVariant => "something else".to_owned(),
    }
}

fn list(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

struct Reader<'a>(&'a Node);

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.value {
            Value::Null | Value::Cut => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(value, _) => visitor.visit_f64(*value),
            Value::Text { text, .. } => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(Items { items, next: 0 }),
            Value::Map(members) => visitor.visit_map(Members {
                members,
                value: None,
            }),
        }
    }

    /// `enabled: ${ENABLED}` says true or false as a text.
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if let Value::Text {
            text,
            interpolated: true,
        } = &self.0.value
            && let Ok(value) = text.parse()
        {
            return visitor.visit_bool(value);
        }
        self.deserialize_any(visitor)
    }

    /// What asks for a `str` takes numbers and booleans as they were written; what asks for a `String` does not.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if let Value::Number(_, text) = &self.0.value {
            return visitor.visit_str(text);
        }
        if let Value::Bool(value) = &self.0.value {
            return visitor.visit_str(if *value { "true" } else { "false" });
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if matches!(self.0.value, Value::Null) {
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    /// An object of fields is never written as a list of their values; null is all of their defaults.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        if matches!(self.0.value, Value::List(_)) {
            return Err(Fault::invalid_type(Unexpected::Seq, &visitor));
        }
        if matches!(self.0.value, Value::Null) {
            return visitor.visit_map(Members {
                members: &[],
                value: None,
            });
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let Value::Text { text, .. } = &self.0.value else {
            return Err(Fault::unknown_variant("", variants));
        };
        let name: StrDeserializer<'_, Fault> = text.as_str().into_deserializer();
        visitor.visit_enum(name)
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

struct Items<'a> {
    items: &'a [Node],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        while let Some(item) = self.items.get(self.next) {
            let index = self.next;
            self.next += 1;
            if !matches!(item.value, Value::Cut) {
                let value = seed.deserialize(Reader(item));
                return value
                    .map(Some)
                    .map_err(|fault| fault.under(Step::Index(index)));
            }
        }
        Ok(None)
    }
}

struct Members<'a> {
    members: &'a [(Key, Node)],
    value: Option<&'a (Key, Node)>,
}

impl<'de> MapAccess<'de> for Members<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        while let Some((member, rest)) = self.members.split_first() {
            self.members = rest;
            if !matches!(member.1.value, Value::Cut) {
                self.value = Some(member);
                let name = member.0.name.as_str();
                let key: StrDeserializer<'_, Fault> = name.into_deserializer();
                let key = seed.deserialize(key);
                return key
                    .map(Some)
                    .map_err(|fault| fault.under(Step::Key(name.to_owned())));
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let (key, node) = self
            .value
            .take()
            .ok_or_else(|| Fault::custom("a value without a key"))?;
        seed.deserialize(Reader(node))
            .map_err(|fault| fault.under(Step::Key(key.name.clone())))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default, deny_unknown_fields, expecting = "an object of fields")]
    struct Thing {
        command: Option<String>,
        args: Vec<String>,
        enabled: Option<bool>,
        kind: Option<Kind>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Stdio,
        Http,
    }

    fn thing(source: &str) -> (Option<Thing>, Vec<String>) {
        let node = Node::parse(source).unwrap();
        let (value, faults) = read(&node);
        let shown = faults.iter().map(|fault| {
            let (_, path) = node.locate(&fault.path);
            format!("{path}: {}", fault.message)
        });
        (value, shown.collect())
    }

    #[test]
    fn one_reading_finds_every_fault_and_keeps_what_is_sound() {
        let source = "comand: x\nargs: [a, [b], c, {}]\nenabled: 1\nkind: secret-1\n";
        let (value, faults) = thing(source);
        assert_eq!(value.unwrap().args, ["a", "c"]);
        assert_eq!(
            faults,
            [
                "comand: nobody defines a field `comand`; did you mean `command`?",
                "args[1]: write a string; this is a list",
                "args[3]: write a string; this is an object",
                "enabled: write true or false; this is 1",
                "kind: write one of `stdio`, `http`",
            ]
        );
    }

    #[test]
    fn null_is_the_default_and_a_word_is_no_object() {
        assert_eq!(thing("command: null").0, Some(Thing::default()));
        for (source, kind) in [("sesame", "a string"), ("[]", "a list")] {
            let (value, faults) = thing(source);
            assert_eq!(value, None);
            assert_eq!(
                faults,
                [format!(": write an object of fields; this is {kind}")]
            );
        }
    }

    #[test]
    fn the_nearest_name_is_offered_only_when_it_is_near() {
        let known = ["reconnectIntervalMs", "url", "env"];
        assert_eq!(
            nearest("reconectIntervalMS", &known),
            Some("reconnectIntervalMs")
        );
        assert_eq!(nearest("uri", &known), Some("url"));
        assert_eq!(nearest("sandbox", &known), None);
    }
}
