//! A YAML document (JSON is one too) as a small tree. An alias counts with the size of what it refers to, so a file cannot grow beyond its
//! bounds.

use saphyr_parser::{Event, Parser, ScalarStyle};
use std::collections::HashMap;

/// Values in a file, counting what an alias repeats.
const NODES_MAX: usize = 10_000;
/// Lists and mappings within each other.
const DEPTH_MAX: usize = 16;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// Nothing, or `null`.
    Null,
    /// A word without quotes, which may be meant as a number or a boolean.
    Plain(String),
    /// A text in quotes or a block.
    Quoted(String),
    /// A list.
    List(Vec<Node>),
    /// Keys and values, in the order of the file.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// What it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Node::Null => "nothing",
            Node::Plain(_) => "a word",
            Node::Quoted(_) => "a text",
            Node::List(_) => "a list",
            Node::Map(_) => "a mapping",
        }
    }

    fn size(&self) -> usize {
        match self {
            Node::Null | Node::Plain(_) | Node::Quoted(_) => 1,
            Node::List(nodes) => 1 + nodes.iter().map(Node::size).sum::<usize>(),
            Node::Map(pairs) => 1 + pairs.iter().map(|pair| 1 + pair.1.size()).sum::<usize>(),
        }
    }
}

/// A list or mapping that is being read.
enum Open {
    List(Vec<Node>),
    Map { pairs: Vec<(String, Node)>, key: Option<String>, merged: Vec<(String, Node)> },
}

struct Reader {
    open: Vec<(Open, usize)>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    root: Option<Node>,
}

/// Reads one document.
pub(super) fn parse(text: &str) -> Result<Node, String> {
    let mut reader = Reader { open: Vec::new(), anchors: HashMap::new(), nodes: 0, root: None };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| error.to_string())?;
        if reader.root.is_some() && matches!(event, Event::DocumentStart(_)) {
            return Err("there is more than one document in it".into());
        }
        reader.take(event).map_err(|why| format!("line {}: {why}", span.start.line()))?;
    }
    Ok(reader.root.unwrap_or(Node::Null))
}

impl Reader {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let node = match style {
                    ScalarStyle::Plain if matches!(&*text, "" | "~" | "null" | "Null" | "NULL") => Node::Null,
                    ScalarStyle::Plain => Node::Plain(text.into_owned()),
                    _ => Node::Quoted(text.into_owned()),
                };
                self.put(node, anchor)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => self.put(node.clone(), 0),
                None => Err("an alias names what it is in itself".into()),
            },
            Event::SequenceStart(anchor, _) => self.begin(Open::List(Vec::new()), anchor),
            Event::MappingStart(anchor, _) => {
                self.begin(Open::Map { pairs: Vec::new(), key: None, merged: Vec::new() }, anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some((Open::List(nodes), anchor)) => self.put(Node::List(nodes), anchor),
                Some((Open::Map { mut pairs, merged, .. }, anchor)) => {
                    for (key, node) in merged {
                        if pairs.iter().all(|pair| pair.0 != key) {
                            pairs.push((key, node));
                        }
                    }
                    self.put(Node::Map(pairs), anchor)
                }
                None => Err("a list or mapping ends that did not begin".into()),
            },
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                Ok(())
            }
        }
    }

    fn begin(&mut self, open: Open, anchor: usize) -> Result<(), String> {
        if self.open.len() == DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} lists and mappings within each other"));
        }
        self.open.push((open, anchor));
        Ok(())
    }

    fn put(&mut self, node: Node, anchor: usize) -> Result<(), String> {
        // Lists and mappings are counted when they end, again with what is in them: that only makes the bound tighter.
        self.nodes += node.size();
        if self.nodes > NODES_MAX {
            return Err(format!("more than {NODES_MAX} values"));
        }
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some((Open::List(nodes), _)) => nodes.push(node),
            Some((Open::Map { pairs, key, merged }, _)) => match key.take() {
                None => match node {
                    Node::Plain(text) | Node::Quoted(text) => *key = Some(text),
                    Node::Null => *key = Some("null".into()),
                    other => return Err(format!("{} is no key", other.kind())),
                },
                Some(name) if name == "<<" => merge(merged, node)?,
                Some(name) if pairs.iter().any(|pair| pair.0 == name) => {
                    return Err(format!("key {name:?} is there twice"));
                }
                Some(name) => pairs.push((name, node)),
            },
        }
        Ok(())
    }
}

/// `<<`: keys of another mapping, or several, of which the first counts.
fn merge(merged: &mut Vec<(String, Node)>, node: Node) -> Result<(), String> {
    match node {
        Node::Map(pairs) => {
            merged.extend(pairs);
            Ok(())
        }
        Node::List(nodes) => nodes.into_iter().try_for_each(|node| match node {
            Node::Map(_) => merge(merged, node),
            other => Err(format!("{} cannot be merged into a mapping", other.kind())),
        }),
        other => Err(format!("{} cannot be merged into a mapping", other.kind())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, Node)]) -> Node {
        Node::Map(pairs.iter().map(|(key, node)| (key.to_string(), node.clone())).collect())
    }

    fn plain(text: &str) -> Node {
        Node::Plain(text.into())
    }

    #[test]
    fn yaml_and_json() {
        let tree = map(&[
            ("name", Node::Quoted("a".into())),
            ("count", plain("5")),
            ("none", Node::Null),
            ("outputs", Node::List(vec![plain("stderr")])),
        ]);
        assert_eq!(parse("name: 'a'\ncount: 5\nnone:\noutputs: [stderr]\n"), Ok(tree));
        let json = r#"{"name": "a", "count": 5, "deep": {"x": [true, null]}}"#;
        let deep = map(&[("x", Node::List(vec![plain("true"), Node::Null]))]);
        assert_eq!(parse(json), Ok(map(&[("name", Node::Quoted("a".into())), ("count", plain("5")), ("deep", deep)])));
        assert_eq!((parse(""), parse("# nothing\n")), (Ok(Node::Null), Ok(Node::Null)));
    }

    #[test]
    fn aliases_and_merges() {
        let text = "base: &base {a: 1, b: 2}\nother:\n  <<: *base\n  a: 3\n";
        let Ok(Node::Map(pairs)) = parse(text) else { panic!("a mapping") };
        assert_eq!(pairs[1].1, map(&[("a", plain("3")), ("b", plain("2"))]));
    }

    /// On a stack of 2 MiB: what threads have.
    #[test]
    fn the_deepest_files_fit_the_stack() {
        let work = || {
            let written = |levels: usize| parse(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
            assert!(written(DEPTH_MAX).is_ok() && written(DEPTH_MAX + 1).is_err());
            // Each level names the one before it, which is counted again with all that it holds.
            let through_aliases = |levels: usize| {
                let mut text = String::from("a0: &a0 [x]\n");
                for level in 1..levels {
                    text.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
                }
                parse(&text)
            };
            let deepest = (1..1_000).take_while(|levels| through_aliases(*levels).is_ok()).count();
            assert!((20..=140).contains(&deepest), "{deepest} levels");
        };
        std::thread::Builder::new().stack_size(2 << 20).spawn(work).expect("a thread").join().expect("done");
    }

    #[test]
    fn hostile_files_are_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let below = format!("*a{}, ", level - 1).repeat(10);
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", below.trim_end_matches(", ")));
        }
        for bad in [
            bomb,
            "[".repeat(100_000),
            "{a: ".repeat(1_000),
            "- ".repeat(1_000),
            "a: 1\na: 2\n".into(),
            "a: &x [*x]\n".into(),
            "a: 1\n---\nb: 2\n".into(),
            "? [a]\n: b\n".into(),
            "a: 'x\n".into(),
            "\ta: b\n: :".into(),
        ] {
            assert!(parse(&bad).is_err(), "{}", &bad[..bad.len().min(80)]);
        }
    }
}
