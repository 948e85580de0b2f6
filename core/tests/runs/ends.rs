//! End conditions: how responses end, and what one request's end does to its neighbours.

use super::common::{VOCAB, exact, plain, play, requests, shapes};
use treeline_core::testing::{Script, Seeded, Shape};
use treeline_core::{End, Fault, Law, Request, Sampling};

const LAW: Law<'_> = Law::SampleMatch { seed: 3 };
const WARM: Sampling = Sampling { temperature: 0.7, top_k: 0, top_p: 0.95 };

/// A drafter that knows the target: every draft is accepted.
fn knowing() -> Script {
    Script { noise: 0.0, ..Script::new(VOCAB) }
}

#[test]
fn the_same_tokens_whatever_policy_batch_and_drafter() {
    for conditional in [false, true] {
        for noise in [0.0, 2.0, 50.0] {
            let script = Script { conditional, noise, ..Script::new(VOCAB) };
            assert!(exact(&script, &Law::Greedy, Sampling::GREEDY), "{conditional} {noise}");
            assert!(exact(&script, &LAW, WARM), "{conditional} {noise}");
        }
    }
}

#[test]
fn an_end_token_inside_the_accepted_path_ends_the_response_there() {
    let script = knowing();
    let mut list = requests(1, 40, Sampling::GREEDY);
    let whole = plain(&script, &list[0], 0);
    // The first token that occurs only now, in the middle of the second round's path.
    let at = (9..16).find(|&i| !whole[..i].contains(&whole[i])).unwrap();
    list[0].eos = vec![whole[at]];
    let (engine, responses, entries) = play(&script, &Shape::chain(7), &list, &Law::Greedy, 7, 1);
    assert_eq!(responses[0].tokens, whole[..=at]);
    assert_eq!(responses[0].end, Ok(End::Eos));
    let last = entries.last().unwrap().result.clone().unwrap();
    assert_eq!(last.emitted.len(), last.path.len(), "no bonus behind the end token");
    assert!(last.path.len() < 7, "the tree went on");
    assert_eq!((engine.free(), engine.kv_rows()), (4, 0));
}

#[test]
fn an_end_token_from_the_prefill_ends_at_once() {
    let script = knowing();
    let mut list = requests(2, 40, Sampling::GREEDY);
    list[0].eos = vec![plain(&script, &list[0], 0)[0]];
    let (_, responses, _) = play(&script, &Shape::chain(7), &list, &Law::Greedy, 7, 1);
    assert_eq!((responses[0].tokens.len(), responses[0].steps, &responses[0].end), (1, 0, &Ok(End::Eos)));
    assert_eq!(responses[1].tokens.len(), 40);
}

#[test]
fn fewer_tokens_left_than_the_tree_is_deep() {
    for max_new in 1..=10 {
        let list = requests(3, max_new, Sampling::GREEDY);
        let (_, responses, _) = play(&knowing(), &Shape::chain(7), &list, &Law::Greedy, 7, 2);
        for (response, request) in responses.iter().zip(&list) {
            assert_eq!(response.tokens, plain(&knowing(), request, 0));
            assert_eq!((response.tokens.len() as u32, &response.end), (max_new, &Ok(End::Length)));
        }
    }
}

/// The last token needs no KV row: `context` positions hold the prompt and all tokens but the last.
#[test]
fn the_context_fills_up_to_its_last_position() {
    for context in 11..30 {
        let script = Script { context, ..Script::new(VOCAB) };
        let list = requests(5, 60, WARM);
        for shape in shapes() {
            let (engine, responses, _) = play(&script, &shape, &list, &LAW, shape.nodes(), 2);
            for (response, request) in responses.iter().zip(&list) {
                assert_eq!(response.end, Ok(End::Context));
                assert_eq!(response.tokens, plain(&script, request, 3));
                assert_eq!(response.tokens.len() + request.prompt.len(), context as usize + 1);
            }
            assert_eq!(engine.free(), 4);
        }
    }
}

#[test]
fn without_drafts_it_is_plain_decoding() {
    let list = requests(4, 20, WARM);
    let expected: Vec<Vec<u32>> = list.iter().map(|r| plain(&knowing(), r, 3)).collect();
    let block_1 = Script { depth: 0, ..knowing() };
    for (script, shape, budget) in [
        // Zero drafts; budget 0; block 1: a drafter without masked slots.
        (knowing(), Shape::new(&[], &[]), 8),
        (knowing(), Shape::chain(7), 0),
        (block_1, Shape::chain(7), 8),
    ] {
        let (_, responses, entries) = play(&script, &shape, &list, &LAW, budget, 2);
        assert!(responses.iter().map(|r| &r.tokens).eq(&expected));
        assert!(entries.iter().all(|e| (e.rows, e.depth) == (1, 0) && e.expected == 0.0));
        assert!(responses.iter().all(|r| r.steps == 19));
    }
}

#[test]
fn all_rejected_still_moves_on_by_one() {
    // The drafter knows the target, the policy takes the worst of eight ranks.
    let shape = Shape::new(&[0, 1], &[7, 7]);
    let list = requests(3, 20, Sampling::GREEDY);
    let (_, responses, entries) = play(&knowing(), &shape, &list, &Law::Greedy, 2, 3);
    assert!(entries.iter().all(|e| e.result.as_ref().unwrap().accepted() == 0));
    // At the very end one token is left: no draft could be accepted, so none is verified.
    assert!(entries.iter().all(|e| e.rows == 3 || e.start as usize >= list[e.index].prompt.len() + 16));
    for (response, request) in responses.iter().zip(&list) {
        assert_eq!((response.steps, &response.tokens), (19, &plain(&knowing(), request, 0)));
    }
}

/// Public faults 2 and 7 in a batch: the request with the NaN row ends, with its reason; its neighbours notice nothing.
#[test]
fn one_request_fails_its_neighbours_go_on() {
    let list = requests(4, 24, WARM);
    let at = list[1].prompt.len() as u32 + 9;
    let broken = [
        Script { nan_target: Some((1, at)), ..knowing() },
        Script { nan_draft: Some((1, at)), ..knowing() },
        Script { nan_draft: Some((1, at)), conditional: true, ..knowing() },
    ];
    for script in broken {
        for concurrency in [1, 4] {
            let (engine, responses, entries) = play(&script, &Shape::widths(&[2, 2, 1]), &list, &LAW, 20, concurrency);
            for (response, request) in responses.iter().zip(&list) {
                let whole = plain(&knowing(), request, 3);
                if response.request == 1 {
                    let fault = response.end.clone().unwrap_err();
                    assert!(matches!(fault, Fault::TargetLogits { .. } | Fault::Draft { .. }), "{fault}");
                    assert!(whole.starts_with(&response.tokens) && response.tokens.len() < 24);
                } else {
                    assert_eq!((&response.tokens, &response.end), (&whole, &Ok(End::Length)));
                }
            }
            assert_eq!(entries.iter().filter(|e| e.result.is_err()).count(), 1);
            assert_eq!((engine.free(), engine.kv_rows()), (4, 0));
        }
    }
}

#[test]
fn unusable_requests_end_alone_and_say_why() {
    let mut list = requests(6, 8, Sampling::GREEDY);
    list[1].prompt.clear();
    list[2].prompt = vec![0; 65];
    list[3].max_new = 0;
    list[4].prompt[1] = VOCAB;
    let script = Script { context: 64, ..knowing() };
    let (engine, responses, _) = play(&script, &Shape::chain(3), &list, &Law::Greedy, 3, 2);
    let why: Vec<String> =
        responses.iter().map(|r| r.end.clone().map_or_else(|f| f.to_string(), |_| "-".into())).collect();
    assert_eq!(why[0], "-");
    assert_eq!(why[1], "bad request: the prompt is empty");
    assert!(why[2].contains("65 tokens") && why[2].contains("64"), "{}", why[2]);
    assert!(why[3].contains("max_new"), "{}", why[3]);
    assert!(why[4].contains("outside the vocabulary"), "{}", why[4]);
    assert_eq!((responses[5].tokens.len(), engine.free()), (8, 4));
}

#[test]
fn requests_enter_in_list_order_into_the_lowest_free_slot() {
    let mut list = requests(7, 30, Sampling::GREEDY);
    list[1].max_new = 3;
    list[2].max_new = 9;
    let (engine, ..) = play(&knowing(), &Shape::chain(3), &list, &Law::Greedy, 3, 3);
    let order: Vec<u64> = engine.admitted().iter().map(|a| a.1).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6]);
    let slots: Vec<u32> = engine.admitted().iter().map(|a| a.0).collect();
    assert_eq!(slots[..5], [0, 1, 2, 1, 2]);
}

/// Public fault 28: leaks and stale lengths. The control leaks rows.
#[test]
fn fault_28_a_thousand_rounds_leave_nothing_behind() {
    let list: Vec<Request> = requests(60, 40, WARM);
    let rounds = |seeded| {
        let script = Script { noise: 4.0, seeded, ..knowing() };
        let (engine, _, entries) = play(&script, &Shape::widths(&[2, 1]), &list, &LAW, 4, 4);
        (entries.len(), engine.free(), engine.kv_rows())
    };
    let (steps, free, rows) = rounds(Seeded::Nothing);
    assert!(steps >= 1000, "{steps}");
    assert_eq!((free, rows), (4, 0));
    assert_ne!(rounds(Seeded::Leak).2, 0);
}
