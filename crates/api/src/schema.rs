//! The fields of the API's messages, as tables: for code that handles messages without knowing their types.

/// A message.
#[derive(Debug)]
pub struct Message {
    /// Name with its package, `etcdserverpb.RangeRequest`.
    pub name: &'static str,
    /// Its fields, by number.
    pub fields: &'static [Field],
}

/// A field of a message.
#[derive(Debug)]
pub struct Field {
    /// Number on the wire.
    pub number: u32,
    /// Name in the `.proto` file.
    pub name: &'static str,
    /// Name as protobuf's JSON spells it: `range_end` is `rangeEnd`.
    pub json_name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether it holds many of them.
    pub repeated: bool,
    /// The group of which only one field is set, if it is in one.
    pub oneof: Option<&'static str>,
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `bool`.
    Bool,
    /// `int32`.
    Int32,
    /// `int64`.
    Int64,
    /// `uint32`.
    Uint32,
    /// `uint64`.
    Uint64,
    /// `string`.
    String,
    /// `bytes`.
    Bytes,
    /// An enumeration.
    Enum(&'static Enum),
    /// Another message.
    Message(&'static Message),
}

/// An enumeration.
#[derive(Debug)]
pub struct Enum {
    /// Names and numbers.
    pub values: &'static [(&'static str, i32)],
}

impl Message {
    /// The message called `name`, with its package.
    pub fn find(name: &str) -> Option<&'static Message> {
        let place = generated::MESSAGES.binary_search_by(|message| message.name.cmp(name)).ok()?;
        generated::MESSAGES.get(place).copied()
    }

    /// The place of the field that has `number`.
    pub fn by_number(&self, number: u32) -> Option<&'static Field> {
        let place = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        self.fields.get(place)
    }

    /// The field called `name` in JSON or in the `.proto` file.
    pub fn by_name(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name || field.json_name == name)
    }
}

impl Enum {
    /// The name of `number`.
    pub fn name(&self, number: i32) -> Option<&'static str> {
        self.values.iter().find(|(_, value)| *value == number).map(|(name, _)| *name)
    }

    /// The number of `name`.
    pub fn number(&self, name: &str) -> Option<i32> {
        self.values.iter().find(|(text, _)| *text == name).map(|(_, value)| *value)
    }
}

mod generated {
    use super::{Enum, Field, Kind, Message};

    include!(concat!(env!("OUT_DIR"), "/schema.rs"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_with_their_fields() {
        let range = Message::find("etcdserverpb.RangeRequest").expect("a message of the API");
        let end = range.by_name("rangeEnd").expect("its JSON name");
        assert_eq!((end.number, end.name), (2, "range_end"));
        let Kind::Enum(order) = range.by_name("sort_order").expect("its name").kind else { panic!("an enumeration") };
        assert_eq!((order.name(1), order.number("DESCEND"), order.name(7)), (Some("ASCEND"), Some(2), None));
        let op = Message::find("etcdserverpb.RequestOp").expect("a message of the API");
        assert_eq!(op.by_number(4).and_then(|field| field.oneof), Some("etcdserverpb.RequestOp.request"));
        let grant = Message::find("etcdserverpb.LeaseGrantRequest").expect("a message of the API");
        assert_eq!(grant.by_number(1).map(|field| field.json_name), Some("TTL"));
        assert!(Message::find("etcdserverpb.Nothing").is_none());
        assert!(Message::find("v3lockpb.LockResponse").is_some());
    }
}
