//! What a Dockerfile of a stranger costs: at most 32 MB of memory, and seconds.

use std::time::{Duration, Instant};

use allocation_counter::measure;
use dockerfile::{BuildArgs, ImageSettings, MAX_BYTES};

const MAX_MEMORY: u64 = 32_000_000;
/// On a busy machine; alone, all of them take less than a second.
const MAX_TIME: Duration = Duration::from_secs(10);

/// As many of a text as fit behind the start, with their number in place of `#`.
fn fill(start: &str, text: &str) -> String {
    let mut all = start.to_owned();
    for number in 0.. {
        let next = text.replace('#', &number.to_string());
        if all.len() + next.len() > MAX_BYTES - 64 {
            break;
        }
        all.push_str(&next);
    }
    all
}

/// Parses and plans as the builder does. Returns the message of the error.
fn build(text: &str) -> String {
    let args = BuildArgs::new();
    let planned = dockerfile::parse(text).and_then(|file| {
        file.base(&args)?;
        file.plan(&args, &ImageSettings::default())
    });
    planned.err().map(|error| error.message).unwrap_or_default()
}

/// 128 `ENV`s with many variables, with a `RUN` behind each.
fn changed_variables() -> String {
    let variables: String = (0..400).map(|number| format!(" v{number}=x")).collect();
    let mut text = "FROM a\n".to_owned();
    for number in 0..60 {
        text.push_str(&format!("ENV n{number}=1{variables}\nRUN x\n"));
    }
    text
}

/// Stages with many labels, each of which is built upon the one before and has one more.
fn stages() -> String {
    let mut text = fill("FROM a AS s0\nLABEL", " v#=x");
    // Room for the other stages.
    text.truncate(MAX_BYTES / 2);
    text.truncate(text.rfind(' ').unwrap_or(0));
    for number in 1..16 {
        text.push_str(&format!("\nFROM s{} AS s{number}\nLABEL n{number}=x", number - 1));
    }
    text
}

#[test]
fn hostile_dockerfiles_take_bounded_memory_and_time() {
    let many_variables = format!("{}\n{}", fill("FROM a\nENV", " v#=x"), "RUN x\n".repeat(200));
    let corpus = [
        ("many variables", fill("FROM a\nENV", " v#=x"), "more than 2048 variables of ENV"),
        (
            "variables and commands",
            many_variables[..MAX_BYTES.min(many_variables.len())].to_owned(),
            "variables",
        ),
        ("changed variables", changed_variables(), ""),
        ("many arguments", fill("FROM a\nARG", " v#=x"), "more than 2048 variables of ARG"),
        ("global arguments", fill("ARG", " v#=x") + "\nFROM a", "variables of ARG"),
        ("many sources", fill("FROM a\nCOPY", " a") + " /b/", "more than 4096 sources"),
        ("many words", fill("FROM a\nRUN [\"a\"", ",\"a\"") + "]", ""),
        ("many lines", fill("FROM a\nRUN x", " \\\n"), ""),
        ("many comments", fill("", "#\n") + "FROM a", ""),
        ("many documents", fill("FROM a\nRUN", " <<a"), "more than 256 here-documents"),
        ("many instructions", fill("FROM a\n", "USER a\n"), "more than 256 instructions"),
        ("nested variables", fill("FROM a\nENV a=", "${a:-"), ""),
        ("growing variables", fill("FROM a\nENV a=aaaaaaaa\n", "ENV a=$a$a$a$a$a$a$a$a\n"), ""),
        ("many uses", fill("FROM a\nENV a=b\nENV c=", "$a"), ""),
        ("open quotes", fill("FROM a\nENV a=", "\"'"), ""),
        ("escapes", fill("FROM a\nENV a=", "\\"), ""),
        ("labels", fill("FROM a\nLABEL", " v#=x"), ""),
        ("ports", fill("FROM a\nEXPOSE", " 1"), ""),
        ("ranges of ports", fill("FROM a\nEXPOSE", " 1-64"), ""),
        ("many ports", fill("FROM a\nEXPOSE", " #/udp"), "EXPOSE"),
        ("stages", stages(), "the settings of all stages"),
        ("patterns", fill("FROM a\nENV a=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\nLABEL", " v#=${a//*x*y/}"), ""),
        ("flags", fill("FROM a\nCOPY", " --link"), ""),
        ("json", fill("FROM a\nRUN ", "["), ""),
    ];
    for (name, text, reason) in corpus {
        let begin = Instant::now();
        let mut message = String::new();
        let used = measure(|| message = build(&text));
        let shown: String = message.chars().take(100).collect();
        println!("{name}: {} bytes, {:?}, {shown}", used.bytes_max, begin.elapsed());
        assert!(message.contains(reason), "{name}: {shown}");
        assert!(used.bytes_max <= MAX_MEMORY, "{name} takes {} bytes", used.bytes_max);
        assert!(begin.elapsed() < MAX_TIME, "{name} takes {:?}", begin.elapsed());
    }
}

#[test]
fn variables_that_change_between_commands_are_bounded() {
    let variables: String = (0..2000).map(|number| format!(" v{number}=x")).collect();
    let mut text = format!("FROM a\nENV{variables}\n");
    for number in 0..120 {
        text.push_str(&format!("ENV v{number}=y\nRUN x\n"));
    }
    let mut message = String::new();
    let used = measure(|| message = build(&text));
    assert!(message.contains("the variables of all RUNs together"), "{message}");
    assert!(used.bytes_max <= MAX_MEMORY, "{} bytes", used.bytes_max);
    // Without changes in between all commands share them.
    let text = format!("FROM a\nENV{variables}\n{}", "RUN x\n".repeat(250));
    let used = measure(|| message = build(&text));
    assert_eq!(message, "");
    assert!(used.bytes_max <= MAX_MEMORY / 8, "{} bytes", used.bytes_max);
}
