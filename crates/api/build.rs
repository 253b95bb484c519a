//! Compiles `proto/*.proto` with `protox`, so that building Cairn needs no `protoc`: to types with `prost`, and to the tables of
//! [`schema`](src/schema.rs).

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use std::fmt::Write;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["kv", "auth", "membership", "rpc", "election", "lock", "lease", "wal", "snap", "raft", "archive"];
    let files: Vec<String> = files.iter().map(|name| format!("{name}.proto")).collect();
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(&files, ["proto"])?;
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("schema.rs"), schema(&descriptors))?;
    prost_build::Config::new()
        .bytes(["."])
        .btree_map(["."])
        // Passwords, their hashes and tokens: `src/secrets.rs` shows what may be seen of them.
        .skip_debug([
            ".authpb.User",
            ".etcdserverpb.AuthenticateRequest",
            ".etcdserverpb.AuthenticateResponse",
            ".etcdserverpb.AuthUserAddRequest",
            ".etcdserverpb.AuthUserChangePasswordRequest",
            ".etcdserverpb.InternalAuthenticateRequest",
        ])
        .type_attribute(".", "#[allow(missing_docs)]")
        .compile_fds(descriptors)?;
    Ok(())
}

/// The packages that clients see, and what they name.
const SCHEMA_PACKAGES: [&str; 6] = ["mvccpb", "membershippb", "authpb", "etcdserverpb", "v3electionpb", "v3lockpb"];

/// Tables of all messages and enumerations of the API, and one that finds a message by its name.
fn schema(descriptors: &FileDescriptorSet) -> String {
    let (mut text, mut names) = (String::new(), Vec::new());
    for file in descriptors.file.iter().filter(|file| SCHEMA_PACKAGES.contains(&file.package())) {
        for message in &file.message_type {
            put_message(&mut text, &mut names, file.package(), message);
        }
        for table in &file.enum_type {
            put_enum(&mut text, file.package(), table);
        }
    }
    names.sort();
    put(&mut text, format_args!("/// Every message, by name.\npub(super) static MESSAGES: &[&Message] = &[\n"));
    for name in names {
        put(&mut text, format_args!("    &{},\n", constant(&name)));
    }
    text + "];\n"
}

/// Writing to a string cannot fail.
fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(line);
}

fn put_message(text: &mut String, names: &mut Vec<String>, parent: &str, message: &DescriptorProto) {
    let name = format!("{parent}.{}", message.name());
    let mut fields: Vec<_> = message.field.iter().collect();
    fields.sort_by_key(|field| field.number());
    put(text, format_args!("static {}: Message = Message {{ name: {name:?}, fields: &[\n", constant(&name)));
    for field in fields {
        let oneof = field.oneof_index.map(|index| format!("{name}.{}", message.oneof_decl[index as usize].name()));
        put(
            text,
            format_args!(
                "    Field {{ number: {}, name: {:?}, json_name: {:?}, kind: {}, repeated: {}, oneof: {oneof:?} }},\n",
                field.number(),
                field.name(),
                json_name(field.name()),
                kind(field),
                field.label() == Label::Repeated,
            ),
        );
    }
    text.push_str("] };\n");
    for nested in &message.nested_type {
        put_message(text, names, &name, nested);
    }
    for table in &message.enum_type {
        put_enum(text, &name, table);
    }
    names.push(name);
}

fn put_enum(text: &mut String, parent: &str, table: &EnumDescriptorProto) {
    let name = format!("{parent}.{}", table.name());
    let values: Vec<_> = table.value.iter().map(|value| (value.name(), value.number())).collect();
    put(text, format_args!("static {}: Enum = Enum {{ values: &{values:?} }};\n", constant(&name)));
}

fn kind(field: &FieldDescriptorProto) -> String {
    let of_type = || constant(field.type_name().trim_start_matches('.'));
    match field.r#type() {
        Type::Bool => "Kind::Bool".into(),
        Type::Int32 => "Kind::Int32".into(),
        Type::Int64 => "Kind::Int64".into(),
        Type::Uint32 => "Kind::Uint32".into(),
        Type::Uint64 => "Kind::Uint64".into(),
        Type::String => "Kind::String".into(),
        Type::Bytes => "Kind::Bytes".into(),
        Type::Enum => format!("Kind::Enum(&{})", of_type()),
        Type::Message => format!("Kind::Message(&{})", of_type()),
        other => panic!("field `{}` has type {other:?}, of which the schema knows nothing", field.name()),
    }
}

fn constant(name: &str) -> String {
    name.replace('.', "_").to_uppercase()
}

/// The name of a field in JSON: without underscores, and the letters behind them large.
fn json_name(name: &str) -> String {
    let mut after_underscore = false;
    let mut json = String::new();
    for letter in name.chars() {
        if letter == '_' {
            after_underscore = true;
        } else {
            json.push(if std::mem::take(&mut after_underscore) { letter.to_ascii_uppercase() } else { letter });
        }
    }
    json
}
