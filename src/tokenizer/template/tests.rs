#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/templates")
}

/// The time that the expected texts were rendered at.
fn fixed_clock() -> Clock {
    let then = jiff::civil::date(2025, 7, 4).at(9, 30, 5, 0).to_zoned_datetime(jiff::tz::TimeZone::UTC).unwrap();
    Arc::new(move || then.clone())
}

fn template(source: &str) -> Result<ChatTemplate, String> {
    ChatTemplate::new(source.to_owned().into(), "<s>", "</s>", fixed_clock())
}

fn kept(name: &str) -> ChatTemplate {
    template(&std::fs::read_to_string(folder().join(format!("{name}.jinja"))).unwrap()).unwrap()
}

const PROMPT: RenderOptions = RenderOptions { add_generation_prompt: true, continue_last: false, thinking: None };

#[test]
fn what_a_template_says_when_it_refuses_is_one_short_line_without_escape_codes() {
    let evil = "\u{1b}[31mno\u{7}\u{202e}\n\nmore";
    let source = format!(
        "{{% if messages|length > 2 %}}{{{{ raise_exception('{evil}' ~ 'x' * 5000) }}}}{{% endif %}}{{{{ messages }}}}"
    );
    let told = template(&source)
        .unwrap()
        .render(&[message("user", "a"), message("assistant", "b"), message("user", "c")], &PROMPT);
    let told = told.unwrap_err().to_string();
    assert!(told.contains("[31mno more") && told.len() < 500, "{told}");
    assert!(!told.contains(|c: char| c.is_control() || c == '\u{202e}'), "{told:?}");
    let broken = template(&format!("{{{{ '{evil}' | \u{1b}[31m }}}}")).unwrap_err();
    assert!(!broken.contains(|c: char| c.is_control()), "{broken:?}");
}

#[test]
fn a_thought_that_the_prompt_opens_is_known() {
    let opening = |name, thinking| kept(name).opening(thinking);
    for name in ["deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "MiniMax-M2", "NVIDIA-Nemotron-Nano-v2", "Qwen3.5-4B"] {
        assert_eq!(opening(name, None).as_deref(), Some("<think>\n"), "{name}");
    }
    assert_eq!(opening("deepseek-ai-DeepSeek-V3.1", None), None);
    assert_eq!(opening("deepseek-ai-DeepSeek-V3.1", Some(Thinking::On)).as_deref(), Some("<think>"));
    assert_eq!(opening("Qwen-Qwen3-0.6B", None), None);
    assert_eq!(opening("Qwen-Qwen3-0.6B", Some(Thinking::Off)), None);
    assert_eq!(opening("Qwen3.5-4B", Some(Thinking::Off)), None);
}

#[test]
fn thinking_is_switched_where_a_template_knows_it() {
    for (name, can) in [
        ("Qwen-Qwen3-0.6B", (true, false)),
        ("HuggingFaceTB-SmolLM3-3B", (true, false)),
        ("openai-gpt-oss-120b", (false, true)),
        ("tencent-Hy3", (false, true)),
        ("upstage-Solar-Open-100B", (false, true)),
        ("ibm-granite-granite-3.3-2B-Instruct", (true, false)),
        ("google-gemma-3-4b-it", (false, false)),
        ("Qwen-Qwen2.5-7B-Instruct", (false, false)),
    ] {
        let switch = kept(name).thinking_switch();
        assert_eq!((switch.on_off, switch.effort), can, "{name}");
    }
}

#[test]
fn a_model_without_turns_is_given_the_text_as_it_would_stand_on_paper() {
    let template = template(COMPLETION).unwrap();
    let said =
        [message("user", "The capital of France is"), message("assistant", " Paris."), message("user", "Italy's is")];
    assert_eq!(template.render(&said[..1], &PROMPT).unwrap(), "The capital of France is");
    assert_eq!(template.render(&said, &PROMPT).unwrap(), "The capital of France is Paris.\n\nItaly's is");
    let trimmed = [said[0], message("assistant", "Paris."), said[2]];
    assert_eq!(template.render(&trimmed, &PROMPT).unwrap(), "The capital of France is Paris.\n\nItaly's is");
}

#[test]
fn an_answer_of_gpt_oss_goes_on_in_its_channel() {
    let template = kept("openai-gpt-oss-120b");
    let continued = RenderOptions { add_generation_prompt: false, continue_last: true, thinking: None };
    let begun = |content| template.render(&[message("user", "Hi"), message("assistant", content)], &continued).unwrap();
    assert!(begun("<think>Hm").ends_with("<|start|>assistant<|channel|>analysis<|message|>Hm"));
    assert!(begun("Yes").ends_with("<|start|>assistant<|channel|>final<|message|>Yes"));
}

/// A rendering by Python's jinja2.
#[derive(serde::Deserialize)]
struct Expected {
    template: String,
    bos: String,
    eos: String,
    messages: Vec<BTreeMap<String, String>>,
    prompt: bool,
    thinking: Option<String>,
    text: Option<String>,
    refused: Option<String>,
}

/// The lines of an entry of what Python's jinja2 rendered.
fn from_archive<T: serde::de::DeserializeOwned>(entry: &str) -> Vec<T> {
    let mut archive = zip::ZipArchive::new(std::fs::File::open(folder().join("expected.zip")).unwrap()).unwrap();
    let mut lines = String::new();
    archive.by_name(entry).unwrap().read_to_string(&mut lines).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What a template may be written with, as Python's jinja2 renders it.
#[derive(serde::Deserialize)]
struct Feature {
    source: String,
    text: Option<String>,
}

#[test]
fn whatever_templates_are_written_with_renders_as_pythons_jinja_renders_it() {
    let messages = [message("user", "hello world"), message("assistant", "  hi "), message("user", "bye")];
    let features: Vec<Feature> = from_archive("features.jsonl");
    assert!(features.len() > 40);
    let mut wrong = Vec::new();
    for feature in features {
        let source = format!("{{{{ messages[0].content }}}}|{}", feature.source);
        let rendered = template(&source).and_then(|t| t.render_as_is(&messages, &PROMPT).map_err(|e| e.to_string()));
        if rendered.as_ref().ok() != feature.text.as_ref() {
            wrong.push(format!("{}\n  want {:?}\n  got  {rendered:?}", feature.source, feature.text));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn templates_render_as_pythons_jinja_renders_them() {
    let expected: Vec<Expected> = from_archive("expected.jsonl");
    assert!(expected.len() > 1000);
    let mut wrong = Vec::new();
    for same in expected.chunk_by(|a, b| a.template == b.template) {
        let first = &same[0];
        let source = std::fs::read_to_string(folder().join(format!("{}.jinja", first.template))).unwrap();
        let template = match ChatTemplate::new(source.into(), &first.bos, &first.eos, fixed_clock()) {
            Ok(template) => template,
            Err(error) => {
                wrong.push(format!("{}: {error}", first.template));
                continue;
            }
        };
        for case in same {
            let messages: Vec<_> = case.messages.iter().map(|m| message(&m["role"], &m["content"])).collect();
            let thinking = case.thinking.as_deref().map(|name| Thinking::from_name(name).unwrap());
            let opts = RenderOptions { add_generation_prompt: case.prompt, thinking, ..PROMPT };
            let rendered = template.render_as_is(&messages, &opts);
            let agrees = match (&rendered, &case.text, &case.refused) {
                (Ok(rendered), Some(text), _) => rendered == text,
                (Err(_), _, Some(_)) => true,
                _ => false,
            };
            if !agrees {
                let want = case.text.as_ref().or(case.refused.as_ref());
                wrong.push(format!("{}: {messages:?} {opts:?}\n  want {want:?}\n  got  {rendered:?}", case.template));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), expected.len(), wrong.join("\n"));
}

#[test]
fn a_switch_for_thinking_is_found_where_there_is_one() {
    for name in ["Qwen-Qwen3-0.6B", "HuggingFaceTB-SmolLM3-3B", "GLM-4.6", "deepseek-ai-DeepSeek-V3.1"] {
        assert!(kept(name).thinking_switch().on_off, "{name}");
    }
    for name in ["Qwen-Qwen2.5-7B-Instruct", "google-gemma-3-4b-it", "meta-llama-Llama-3.2-3B-Instruct"] {
        assert_eq!(kept(name).thinking_switch(), ThinkingSwitch::default(), "{name}");
    }
    let qwen = kept("Qwen-Qwen3-0.6B");
    let render = |thinking| qwen.render(&[message("user", "Hi")], &RenderOptions { thinking, ..PROMPT }).unwrap();
    assert!(render(Some(Thinking::Off)).ends_with("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    assert!(render(Some(Thinking::On)).ends_with("<|im_start|>assistant\n"));
    assert_eq!(render(None), render(Some(Thinking::On)));
}

#[test]
fn a_system_message_goes_before_the_users_first_where_the_template_has_no_place_for_it() {
    let gemma = kept("google-gemma-2-2b-it");
    let messages = [message("system", "Be brief."), message("user", "Hi")];
    assert_eq!(
        gemma.render(&messages, &PROMPT).unwrap(),
        "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n"
    );
    // A template that leaves the system message out without a word.
    let silent =
        template("{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}").unwrap();
    assert_eq!(silent.render(&messages, &PROMPT).unwrap(), "[user]Be brief.\n\nHi");
    let llama = kept("meta-llama-Meta-Llama-3-8B-Instruct");
    assert!(
        llama
            .render(&messages, &PROMPT)
            .unwrap()
            .contains("<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>")
    );
}

#[test]
fn turns_that_a_template_wants_in_alternation_are_joined() {
    let mistral = kept("mistralai-Mistral-7B-Instruct-v0.1");
    let messages =
        [message("user", "One"), message("user", "Two"), message("assistant", "Three"), message("user", "Four")];
    assert_eq!(mistral.render(&messages, &PROMPT).unwrap(), "<s>[INST] One\n\nTwo [/INST]Three</s>[INST] Four [/INST]");
    let refused = mistral.render(&[message("assistant", "I first")], &PROMPT).unwrap_err();
    assert!(matches!(&refused, TemplateError::Refused(why) if why.starts_with("Conversation roles")), "{refused}");
}

#[test]
fn an_unfinished_answer_is_rendered_without_its_end() {
    let opts = RenderOptions { continue_last: true, ..PROMPT };
    let messages = [message("user", "Count"), message("assistant", "<think>\nhm\n</think>\n\nOne, two,")];
    assert_eq!(
        kept("Qwen-Qwen3-0.6B").render(&messages, &opts).unwrap(),
        "<|im_start|>user\nCount<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nOne, two,"
    );
    assert_eq!(
        kept("google-gemma-3-4b-it").render(&messages[..1], &opts).unwrap(),
        "<s><start_of_turn>user\nCount<end_of_turn>\n<start_of_turn>model\n"
    );
}

#[test]
fn dates_are_those_of_the_clock() {
    let source =
        "{% for m in messages %}{{ m.content }}{% endfor %} {{ strftime_now('%d %B %Y, %A %H:%M:%S, %b %-d %j') }}";
    let rendered = template(source).unwrap().render(&[message("user", "Hi")], &PROMPT).unwrap();
    assert_eq!(rendered, "Hi 04 July 2025, Friday 09:30:05, Jul 4 185");
}

#[test]
fn json_is_written_as_python_writes_it() {
    let source = "{{ messages[0].content }}{{ {'a': [1, 2.5, true, none, {}], 'é': '<\"\\n\\u0001'}|tojson }}{{ [1, {'a': []}]|tojson(indent=2) }}";
    let rendered = template(source).unwrap().render(&[message("user", "Hi ")], &PROMPT).unwrap();
    assert_eq!(
        rendered,
        "Hi {\"a\": [1, 2.5, true, null, {}], \"é\": \"<\\\"\\n\\u0001\"}[\n  1,\n  {\n    \"a\": []\n  }\n]"
    );
}

#[test]
fn chatml_stands_in_for_a_template_that_cannot_be_used() {
    for broken in [
        "{% if %}",
        "{{ nothing.at.all }}",
        "a fixed text",
        "{{ raise_exception('never') }}",
        "{{ messages[0].content.frobnicate() }}",
    ] {
        assert!(template(broken).is_err(), "{broken}");
    }
    let chatml = template(CHATML).unwrap();
    assert_eq!(
        chatml
            .render(
                &[message("system", "S"), message("user", "U"), message("assistant", "A"), message("user", "V")],
                &PROMPT
            )
            .unwrap(),
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n"
    );
}

/// Templates that would hang, fill the memory or overflow the stack of a program that lets them.
fn hostile_templates() -> Vec<(&'static str, String)> {
    let long = engine::LONGEST_SOURCE - 100;
    let chain = |part: &str| part.repeat(long / part.len());
    let looped = |body: &str| {
        format!("{{% set ns = namespace(x='aaaaaaaa', y=[]) %}}{{% for i in range(99999) %}}{body}{{% endfor %}}")
    };
    let show = "{{ messages[0].content }}";
    vec![
        ("a chain of concatenations", format!("{{{{ a{} }}}}", chain("~a"))),
        ("a chain of sums", format!("{{{{ 1{} }}}}", chain("+1"))),
        ("a chain of attributes", format!("{{{{ a{} }}}}", chain(".b"))),
        ("a chain of filters", format!("{{{{ 'a'{} }}}}", chain("|e"))),
        ("a chain of subscripts", format!("{{{{ a{} }}}}", chain("[0]"))),
        ("a chain of calls", format!("{{{{ a{} }}}}", chain("()"))),
        ("a chain of conjunctions", format!("{{{{ a{} }}}}", chain(" and a"))),
        ("a chain of comparisons", format!("{{{{ 1{} }}}}", chain("<1"))),
        ("a chain of conditions", format!("{{{{ {}a }}}}", chain("a if a else "))),
        ("a chain of elif", format!("{{% if a %}}{}{{% endif %}}", chain("{%elif a%}"))),
        ("a chain of not", format!("{{{{ {}a }}}}", chain("not "))),
        ("a chain of minus", format!("{{{{ {}1 }}}}", chain("-"))),
        ("nested brackets", format!("{{{{ {} }}}}", "(".repeat(long))),
        ("nested lists", format!("{{{{ {}{} }}}}", "[".repeat(long / 2), "]".repeat(long / 2))),
        ("nested blocks", chain("{%if a%}")),
        ("nested assignments", format!("{{% set x = [] %}}{}{{{{ x }}}}{show}", chain("{%set x=[x]%}"))),
        ("nested in a loop", looped("{% set ns.y = [ns.y] %}{{ ns.y }}")),
        ("nested maps in a loop", looped("{% set ns.y = {'a': ns.y} %}") + "{{ ns.y|tojson }}"),
        ("a namespace in itself", "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}".into()),
        ("a namespace in a list in itself", "{%set ns=namespace()%}{%- set ns.x=[{'a':ns}] -%}{{ ns|string }}".into()),
        ("doubling text", looped("{% set ns.x = ns.x ~ ns.x %}")),
        ("doubling lists", looped("{% set ns.y = ns.y + ns.y + [1] %}")),
        ("doubling nests", looped("{% set ns.y = [ns.y, ns.y] %}")),
        ("loops in loops", "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}{% endfor %}".into()),
        ("a macro that calls itself", "{% macro m(x) %}{{ m([x]) }}{% endmacro %}{{ m(1) }}".into()),
        ("a macro that doubles itself", "{% macro m(x) %}{{ m(x) }}{{ m(x) }}{% endmacro %}{{ m(1) }}".into()),
        ("a recursive loop", "{%- for i in [[[1]]] recursive %}{{ loop([[i]]) }}{% endfor %}".into()),
        ("a long text", "{{ 'a' * 99999999999 }}".into()),
        ("a padded text", "{{ 'a'.ljust(99999999999) }}{{ 'a'.zfill(9223372036854775807) }}".into()),
        ("a wide text", "{{ '%99999999d'|format(1) }}{{ '{:99999999}'.format(1) }}".into()),
        ("a long list", "{{ ([1] * 99999999)|tojson }}{{ range(999999999)|list }}".into()),
        ("replacing", looped("{% set ns.x = ns.x|replace('a', 'aaaaaaaa') %}")),
        ("joining", looped("{% set ns.x = [ns.x, ns.x, ns.x]|join(ns.x) %}")),
        ("indenting", "{{ [[[[1]]]]|tojson(indent=99999999999) }}".into()),
        ("too long a source", "a".repeat(engine::LONGEST_SOURCE + 1)),
    ]
}

#[test]
fn no_template_hangs_crashes_or_fills_the_memory() {
    for (what, source) in hostile_templates() {
        for source in [source.clone(), format!("{{{{ messages[0].content }}}}{source}")] {
            let start = Instant::now();
            let result = template(&source).and_then(|template| {
                template.render(&[message("user", "Hi")], &PROMPT).map_err(|error| error.to_string())
            });
            if let Err(error) = &result {
                assert!(!error.contains('\n'), "{what}: {error:?}");
            }
            assert!(start.elapsed() < Duration::from_secs(5), "{what}: {:?}", start.elapsed());
        }
    }
}

#[test]
fn a_long_conversation_has_the_fuel_it_needs() {
    let text = "word ".repeat(400);
    let messages: Vec<_> = (0..1000).map(|i| message(if i % 2 == 0 { "user" } else { "assistant" }, &text)).collect();
    for name in ["Qwen-Qwen3-0.6B", "meta-llama-Llama-3.1-8B-Instruct", "openai-gpt-oss-120b", "google-gemma-4-31B-it"]
    {
        let rendered = kept(name).render(&messages[..999], &PROMPT).unwrap();
        assert!(rendered.len() > 900 * text.len(), "{name}");
    }
}
