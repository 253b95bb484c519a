//! Names with values, in the order they were set.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Limit of names in one object.
const NAMES_MAX: usize = 100;

/// A number or a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Count(u64),
    Number(f64),
    Text(String),
}

/// An object of JSON that keeps the order of its names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Parameters(Vec<(String, Value)>);

impl Parameters {
    /// These parameters with one more.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Parameters {
        self.0.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// The number that `name` has.
    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        if let Some(Value::Count(count)) = self.get(name) { Some(*count) } else { None }
    }

    /// The text that `name` has.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        if let Some(Value::Text(text)) = self.get(name) { Some(text) } else { None }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// These parameters without those in `names`.
    pub(crate) fn without(&self, names: &[&str]) -> Parameters {
        Parameters(self.0.iter().filter(|(name, _)| !names.contains(&name.as_str())).cloned().collect())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count(count) => write!(f, "{count}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Value {
        Value::Count(count)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl Serialize for Parameters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Parameters, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Parameters;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of numbers and texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parameters, A::Error> {
                let mut found = Parameters::default();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if found.0.len() == NAMES_MAX || found.get(&name).is_some() {
                        return Err(serde::de::Error::custom(format!(
                            "`{name}` is there twice, or one of too many names"
                        )));
                    }
                    found.0.push((name, value));
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(Names)
    }
}
