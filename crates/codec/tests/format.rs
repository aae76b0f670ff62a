//! Checks the examples in `docs/reference/format.md` and `data/examples.md`.

use std::collections::HashMap;

use buddy_codec::{
    Codec, CodecKind, EntryCodec, Frozen, Fvc, Packed, freeze,
    testing::{entry_of, hex, stream_of},
};

const PAGE: &str =
    concat!(include_str!("../../../docs/reference/format.md"), include_str!("data/examples.md"));

/// Returns the blocks marked `example`, each line split into its first word and the rest.
fn examples() -> impl Iterator<Item = Vec<(&'static str, &'static str)>> {
    blocks("```example\n")
}

fn blocks(mark: &str) -> impl Iterator<Item = Vec<(&'static str, &'static str)>> {
    PAGE.split(mark).skip(1).map(|block| {
        let (block, _) = block.split_once("```").expect("an example ends");
        block.lines().map(|line| line.split_once(' ').expect("a key and a value")).collect()
    })
}

/// Parses hex words; `*n` repeats one.
fn words(text: &str) -> Vec<u32> {
    let word = |text| u32::from_str_radix(text, 16).expect("a hex word");
    text.split_whitespace()
        .flat_map(|text| match text.split_once('*') {
            Some((text, count)) => vec![word(text); count.parse().expect("a count")],
            None => vec![word(text)],
        })
        .collect()
}

/// Returns the bits of a `code` line as text: binary or hex fields, before the explanation.
fn code(key: &str, text: &str) -> String {
    let mut bits = String::new();
    for field in text.split_whitespace() {
        match field.strip_prefix("0x") {
            Some(digits) => {
                bits.extend(digits.chars().map(|digit| format!("{:04b}", digit.to_digit(16).unwrap())))
            }
            None if field.bytes().all(|bit| bit == b'0' || bit == b'1') => bits.push_str(field),
            None => break,
        }
    }
    let count = key.strip_prefix("code*").map_or(1, |count| count.parse().expect("a count"));
    bits.repeat(count)
}

/// Returns the hex bytes of a `part` line, before the explanation.
fn part(text: &str) -> &str {
    text.split_whitespace().next().expect("a part has bytes")
}

fn codec(fields: &HashMap<&str, &str>) -> Codec {
    let name = fields["codec"].trim();
    match (fields.get("table"), fields.get("parameters")) {
        (Some(table), _) => Codec::Fvc(Fvc::new(words(table)).unwrap()),
        (None, Some(parameters)) => {
            let mut fields: serde_json::Value = serde_json::from_str(parameters).unwrap();
            fields["codec"] = name.into();
            serde_json::from_value(fields).unwrap()
        }
        (None, None) => name.parse::<CodecKind>().unwrap().train(&[]),
    }
}

#[test]
fn every_codec_example_matches() {
    for example in examples() {
        let fields: HashMap<_, _> = example.iter().copied().collect();
        let (codec, text) = (codec(&fields), fields["words"]);
        assert_eq!(codec.kind().name(), fields["codec"].trim());
        let entry = entry_of(words(text).into_iter().map(u32::to_le_bytes).collect::<Vec<_>>());
        let (bits, stream) = stream_of(&codec, &entry);

        let codes: String = example
            .iter()
            .filter(|(key, _)| key.starts_with("code") && *key != "codec")
            .map(|(key, text)| code(key, text))
            .collect();
        let written: String = stream.iter().map(|byte| format!("{byte:08b}")).collect();
        let parts: String =
            example.iter().filter(|(key, _)| *key == "part").map(|(_, text)| part(text)).collect();
        match parts.as_str() {
            "" => assert_eq!(written[..bits as usize], codes, "{text}"),
            _ => assert_eq!((hex(&parts), &*codes), (stream.clone(), ""), "{text}"),
        }
        assert_eq!(
            (bits.to_string().as_str(), &stream),
            (fields["bits"].trim(), &hex(fields["stream"].trim()))
        );
        let mut packed = Packed::default();
        codec.pack(&entry, &mut packed);
        assert_eq!(codec.decode(&stream, packed.nibble().layout()), Ok(entry));
        if let Some(nibble) = fields.get("nibble") {
            assert_eq!(packed.nibble().bits().to_string(), nibble.trim());
        }
        if let Some(stored) = fields.get("stored") {
            assert_eq!(packed.bytes(), hex(stored.trim()));
        }
    }
}

#[test]
fn every_codec_has_an_example() {
    for kind in CodecKind::EVERY {
        let shown = examples().any(|example| example[0].1.trim() == kind.name());
        assert!(shown, "{kind} has no example");
    }
}

#[test]
fn every_frozen_example_matches() {
    let mut shown = 0;
    for example in blocks("```frozen\n") {
        let fields: HashMap<_, _> = example.iter().copied().collect();
        let data: Vec<u8> = words(fields["words"]).into_iter().flat_map(u32::to_le_bytes).collect();
        let target = fields["target"].trim().parse().unwrap();
        let frozen = freeze(&codec(&fields), target, 0, &data).unwrap();
        let open = Frozen::open(&frozen).unwrap();
        let parts = open.header().parts();
        let part = |range: std::ops::Range<u64>| frozen[range.start as usize..range.end as usize].to_vec();
        let until_zeros = |mut bytes: Vec<u8>| {
            bytes.truncate(bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
            bytes
        };
        let listed = |key: &str| {
            let lines = example.iter().filter(|(other, _)| *other == key);
            hex(&lines.flat_map(|(_, text)| text.split_whitespace()).collect::<String>())
        };
        assert_eq!(until_zeros(part(0..128)), listed("header"));
        assert_eq!(until_zeros(part(parts.nibbles.clone())), listed("nibbles"));
        assert_eq!(until_zeros(part(parts.index.clone())), listed("index"));
        assert_eq!(part(parts.overflow.clone()), listed("overflow"));
        assert_eq!(frozen.len().to_string(), fields["bytes"].trim());
        assert_eq!(open.read().unwrap(), data);
        shown += 1;
    }
    assert!(shown > 0, "the page shows a frozen buffer");
}
