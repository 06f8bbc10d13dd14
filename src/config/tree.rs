//! A file as a tree in which every key and value knows its place. It owns the parsing of YAML and JSON; what the
//! values mean is none of its business.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

/// Line and column, both from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl From<Location> for Place {
    fn from(at: Location) -> Self {
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).max(1);
        Self {
            line: count(at.line()),
            column: count(at.column()),
        }
    }
}

/// A value and where it begins.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// What a file can hold.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// With the text it was written as, so that `1.10` can be an argument.
    Number(f64, String),
    /// `interpolated` marks a text in which a `${NAME}` was replaced.
    Text {
        text: String,
        interpolated: bool,
    },
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
    /// Taken out: read as if it were not there.
    Cut,
}

/// A key of an object.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// What it means.
    pub(super) name: String,
    /// What the file says, where another host's name was mapped.
    pub(super) written: String,
    pub(super) place: Place,
}

/// One step of a path into the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

impl Node {
    /// Parses YAML or JSON. An empty file is an empty object.
    ///
    /// # Errors
    /// The place of the first fault of the syntax, and what it is.
    pub(super) fn parse(text: &str) -> Result<Self, (Place, String)> {
        let options = serde_saphyr::options! {
            with_snippet: false,
            strict_booleans: true,
            non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::PassThrough,
        };
        let parsed: Spanned<Parsed> =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| fault(&error))?;
        let mut root = parsed.value.placed(parsed.defined, text);
        if matches!(root.value, Value::Null) {
            root.value = Value::Map(Vec::new());
        }
        Ok(root)
    }

    /// The members of an object; none of anything else.
    pub(super) fn members(&self) -> &[(Key, Self)] {
        match &self.value {
            Value::Map(members) => members,
            Value::Null
            | Value::Bool(_)
            | Value::Number(..)
            | Value::Text { .. }
            | Value::List(_)
            | Value::Cut => &[],
        }
    }

    /// The member of that name.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let mut members = self.members().iter();
        members
            .find(|(key, _)| key.name == name)
            .map(|(_, value)| value)
    }

    /// Whether nothing stands here: null, or a list or an object of nothing.
    pub(super) fn is_empty(&self) -> bool {
        match &self.value {
            Value::Null | Value::Cut => true,
            Value::List(items) => items.is_empty(),
            Value::Map(members) => members.is_empty(),
            Value::Bool(_) | Value::Number(..) | Value::Text { .. } => false,
        }
    }

    /// Whether a member of that name says anything: null is as good as absent (R9).
    pub(super) fn gives(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|node| !matches!(node.value, Value::Null))
    }

    /// The member of that name, to change it.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Self> {
        let Value::Map(members) = &mut self.value else {
            return None;
        };
        let mut members = members.iter_mut();
        members
            .find(|(key, _)| key.name == name)
            .map(|(_, value)| value)
    }

    /// Takes a member out.
    pub(super) fn take(&mut self, name: &str) -> Option<(Key, Self)> {
        let Value::Map(members) = &mut self.value else {
            return None;
        };
        let index = members.iter().position(|(key, _)| key.name == name)?;
        Some(members.remove(index))
    }

    /// Adds the members of `other` that are not here.
    pub(super) fn inherit(&mut self, other: &Self) {
        let missing: Vec<_> = other
            .members()
            .iter()
            .filter(|(key, _)| self.get(&key.name).is_none())
            .cloned()
            .collect();
        if let Value::Map(members) = &mut self.value {
            members.extend(missing);
        }
    }

    /// Where a path leads, as far as it does, and the path as the file writes it.
    pub(super) fn locate(&self, path: &[Step]) -> (Place, String) {
        let mut shown = String::new();
        let (mut node, mut place) = (Some(self), self.place);
        for step in path {
            let next = node.and_then(|node| node.step(step));
            let written = match (step, &next) {
                (Step::Index(index), _) => format!("[{index}]"),
                (Step::Key(_), Some((Some(key), _))) => format!(".{}", key.written),
                (Step::Key(name), _) => format!(".{name}"),
            };
            shown.push_str(&written);
            node = next.map(|(_, node)| node);
            place = node.map_or(place, |node| node.place);
        }
        (place, shown.trim_start_matches('.').to_owned())
    }

    /// Where the key at the end of a path stands, or what [`Self::locate`] says.
    pub(super) fn locate_key(&self, path: &[Step]) -> (Place, String) {
        let (place, shown) = self.locate(path);
        let Some((last, parents)) = path.split_last() else {
            return (place, shown);
        };
        let parent = parents
            .iter()
            .try_fold(self, |node, step| node.step(step).map(|(_, child)| child));
        let key = parent
            .and_then(|parent| parent.step(last))
            .and_then(|(key, _)| key);
        (key.map_or(place, |key| key.place), shown)
    }

    /// Takes out what a path leads to; false where it leads nowhere. What is left keeps its indices.
    pub(super) fn cut(&mut self, path: &[Step]) -> bool {
        let Some((step, rest)) = path.split_first() else {
            let cut = !matches!(self.value, Value::Cut);
            self.value = Value::Cut;
            return cut;
        };
        let child = match (&mut self.value, step) {
            (Value::Map(members), Step::Key(name)) => members
                .iter_mut()
                .find(|(key, _)| key.name == *name)
                .map(|(_, node)| node),
            (Value::List(items), Step::Index(index)) => items.get_mut(*index),
            _ => None,
        };
        child.is_some_and(|child| child.cut(rest))
    }

    fn step(&self, step: &Step) -> Option<(Option<&Key>, &Self)> {
        match (&self.value, step) {
            (Value::Map(members), Step::Key(name)) => members
                .iter()
                .find(|(key, _)| key.name == *name)
                .map(|(key, node)| (Some(key), node)),
            (Value::List(items), Step::Index(index)) => items.get(*index).map(|node| (None, node)),
            _ => None,
        }
    }
}

/// The place and text of a syntax fault. The parser names no values, except in its snippets, which are off.
fn fault(error: &serde_saphyr::Error) -> (Place, String) {
    let error = error.without_snippet();
    let place = error
        .location()
        .map_or(Place { line: 1, column: 1 }, Place::from);
    if let serde_saphyr::Error::DuplicateMappingKey { .. } = error {
        let text = "this key stands twice in one object; keep one of them";
        return (place, text.to_owned());
    }
    let text = error.to_string();
    let text = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(text, _)| text);
    (place, format!("this is neither YAML nor JSON: {text}"))
}

/// A value whose children know their places, and which does not yet know its own.
enum Parsed {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Spanned<Parsed>>),
    Map(Vec<(Spanned<String>, Spanned<Parsed>)>),
}

impl Parsed {
    /// `defined` rather than the place of an alias: a fault is mended where the value is written.
    fn placed(self, at: Location, source: &str) -> Node {
        let value = match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Number(value) => number(value, written(at, source, value)),
            Self::Text(text) => Value::Text {
                text,
                interpolated: false,
            },
            Self::List(items) => Value::List(
                items
                    .into_iter()
                    .map(|item| item.value.placed(item.defined, source))
                    .collect(),
            ),
            Self::Map(members) => Value::Map(
                members
                    .into_iter()
                    .map(|(key, item)| (Key::of(key), item.value.placed(item.defined, source)))
                    .collect(),
            ),
        };
        Node {
            place: at.into(),
            value,
        }
    }
}

impl Key {
    fn of(key: Spanned<String>) -> Self {
        Self {
            written: key.value.clone(),
            name: key.value,
            place: key.defined.into(),
        }
    }
}

/// Hex, octal and digits with underscores are words here, so that R9 refuses them.
fn number(value: f64, text: String) -> Value {
    let decimal = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | 'e' | 'E');
    if value.is_finite() && !text.chars().all(decimal) {
        return Value::Text {
            text,
            interpolated: false,
        };
    }
    Value::Number(value, text)
}

/// A number's own text in the file.
fn written(at: Location, source: &str, value: f64) -> String {
    let span = at.span();
    let range = span.byte_offset().zip(span.byte_len());
    let text = range.and_then(|(start, len)| {
        let start = usize::try_from(start).ok()?;
        source.get(start..start.checked_add(usize::try_from(len).ok()?)?)
    });
    text.map_or_else(|| value.to_string(), |text| text.trim().to_owned())
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ParsedVisitor)
    }
}

struct ParsedVisitor;

impl<'de> Visitor<'de> for ParsedVisitor {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Parsed, E> {
        Ok(Parsed::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Parsed, E> {
        Ok(Parsed::Bool(value))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "no setting is above 2^53, and the text is kept"
    )]
    fn visit_i64<E>(self, value: i64) -> Result<Parsed, E> {
        Ok(Parsed::Number(value as f64))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "no setting is above 2^53, and the text is kept"
    )]
    fn visit_u64<E>(self, value: u64) -> Result<Parsed, E> {
        Ok(Parsed::Number(value as f64))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "no setting is above 2^53, and the text is kept"
    )]
    fn visit_i128<E>(self, value: i128) -> Result<Parsed, E> {
        Ok(Parsed::Number(value as f64))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "no setting is above 2^53, and the text is kept"
    )]
    fn visit_u128<E>(self, value: u128) -> Result<Parsed, E> {
        Ok(Parsed::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Parsed, E> {
        Ok(Parsed::Number(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Parsed, E> {
        Ok(Parsed::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Parsed, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Parsed::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Parsed, A::Error> {
        let mut map: Vec<(Spanned<String>, Spanned<Parsed>)> = Vec::new();
        while let Some(member) = members.next_entry()? {
            map.push(member);
        }
        Ok(Parsed::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(source: &str, path: &[&str]) -> (usize, usize, String) {
        let path: Vec<_> = path
            .iter()
            .map(|step| {
                step.parse()
                    .map_or_else(|_| Step::Key((*step).into()), Step::Index)
            })
            .collect();
        let (place, shown) = Node::parse(source).unwrap().locate(&path);
        (place.line, place.column, shown)
    }

    #[test]
    fn every_value_knows_its_place_in_yaml_and_in_json() {
        let yaml = "a:\n  b: [x, 12]\n  c:\n    d: true\n";
        assert_eq!(at(yaml, &["a", "b", "1"]), (2, 10, "a.b[1]".into()));
        assert_eq!(at(yaml, &["a", "c", "d"]), (4, 8, "a.c.d".into()));
        let json = "{\n\t\"a\": {\n\t\t\"b\": \"x\",\n\t\t\"c\": null\n\t}\n}\n";
        assert_eq!(at(json, &["a", "b"]), (3, 8, "a.b".into()));
        assert_eq!(at(json, &["a", "c"]), (4, 8, "a.c".into()));
    }

    #[test]
    fn a_number_keeps_its_text_and_yes_is_a_word() {
        let node = Node::parse("a: [1.10, yes, 0x10, .inf, 007]").unwrap();
        let Value::List(items) = &node.get("a").unwrap().value else {
            unreachable!()
        };
        assert!(matches!(&items[0].value, Value::Number(_, text) if text == "1.10"));
        assert!(matches!(&items[1].value, Value::Text { text, .. } if text == "yes"));
        assert!(matches!(&items[2].value, Value::Text { text, .. } if text == "0x10"));
        assert!(matches!(&items[3].value, Value::Number(value, _) if value.is_infinite()));
    }

    #[test]
    fn a_fault_of_the_syntax_says_where() {
        let (place, text) = Node::parse("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
        assert!(place.line >= 2, "{place:?} {text}");
        let (place, text) = Node::parse("a: 1\nb: 2\na: 3\n").unwrap_err();
        assert_eq!((place.line, place.column), (3, 1), "{text}");
    }

    #[test]
    fn anchors_and_merges_stand_where_they_are_written() {
        let yaml = "d: &d\n  x: 5\ns:\n  <<: *d\n  y: 6\n";
        assert_eq!(at(yaml, &["s", "x"]), (2, 6, "s.x".into()));
    }

    #[test]
    fn cutting_takes_out_what_a_path_leads_to() {
        let mut node = Node::parse("a: {b: [1, 2], c: 3}").unwrap();
        assert!(node.cut(&[Step::Key("a".into()), Step::Key("c".into())]));
        assert!(!node.cut(&[Step::Key("a".into()), Step::Key("c".into())]));
        assert!(node.cut(&[Step::Key("a".into()), Step::Key("b".into()), Step::Index(0)]));
        let (place, shown) = node.locate(&[Step::Key("a".into()), Step::Key("c".into())]);
        assert_eq!((place.column, shown.as_str()), (19, "a.c"));
    }

    #[test]
    fn marks_and_line_ends_of_other_systems_are_read() {
        let node = Node::parse("\u{feff}{\r\n  \"a\": 1\r\n}\r\n").unwrap();
        assert!(node.gives("a"));
        assert_eq!(at("a: 1\r\nb: 2\r\n", &["b"]).0, 2);
    }

    #[test]
    fn what_grows_without_bound_is_refused() {
        let deep = format!("a: {}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(Node::parse(&deep).is_err());
        let mut bomb = String::from("a: &a0 [x, x]\n");
        for n in 0..40 {
            let next = n + 1;
            bomb += &format!("b{n}: &a{next} [*a{n}, *a{n}, *a{n}, *a{n}]\n");
        }
        assert!(Node::parse(&bomb).is_err());
    }
}
