//! Requests that come over time and wait for a slot or for room.

use crate::common::{closed, moe, play, trace};
use treeline_core::Fault;
use treeline_sim::batch::{Arrivals, BatchError, BatchSetup, Prefill, PricedEngine};
use treeline_sim::memory::{Room, Weights};

fn open(slots: u32, arrivals: Arrivals) -> BatchSetup {
    BatchSetup { arrivals, prefill: Prefill::Charged { chunk: 32 }, ..closed(slots, 8) }
}

#[test]
fn requests_are_served_in_order_and_never_before_they_arrive() {
    let (trace, cost) = (trace(40, 40), moe());
    let setup = open(3, Arrivals::Poisson { per_s: 12.0, seed: 4 });
    let times = setup.arrivals.times(40).unwrap();
    let ran = play(&trace, &cost, &setup, "best-first", "{}").unwrap();
    assert!(ran.responses.iter().all(|r| r.end.is_ok()));
    let visits = ran.engine.visits();
    let order: Vec<u64> = visits.iter().map(|v| v.request).collect();
    assert_eq!(order, (100..140).collect::<Vec<u64>>());
    for (visit, at) in visits.iter().zip(&times) {
        assert_eq!(visit.arrival_ms, *at);
        assert!(visit.arrival_ms <= visit.admitted_ms && visit.admitted_ms < visit.first_ms);
        assert!(visit.first_ms <= visit.end_ms.unwrap());
    }
    // Never more than three at once, and the line moves as soon as one is free.
    for v in visits {
        let running = visits.iter().filter(|o| o.admitted_ms <= v.admitted_ms && o.end_ms.unwrap() > v.admitted_ms);
        assert!(running.count() <= 3);
    }
    let latency = ran.engine.latency().unwrap();
    assert_eq!(latency.requests, 40);
    assert!(latency.queue.p50 <= latency.queue.p90 && latency.queue.p90 <= latency.queue.p99);
    assert!(latency.ttft.mean > latency.queue.mean && latency.tpot.unwrap().p50 > 0.0);
    let tokens: u32 = visits.iter().map(|v| v.tokens).sum();
    assert_eq!(tokens, trace.requests.iter().map(|r| r.emitted).sum::<u32>(), "every token is somebody's");
}

/// The rarer the requests, the less they wait; rare ones meet nobody.
#[test]
fn queueing_grows_with_the_rate() {
    let (trace, cost) = (trace(60, 40), moe());
    let queue = |per_s| {
        let setup = open(2, Arrivals::Poisson { per_s, seed: 9 });
        play(&trace, &cost, &setup, "best-first", "{}").unwrap().engine.latency().unwrap()
    };
    let (rare, busy, flood) = (queue(0.5), queue(15.0), queue(1e6));
    assert!(rare.queue.p90 < 1.0, "{rare:?}");
    assert!(rare.queue.mean < busy.queue.mean && busy.queue.mean < flood.queue.mean);
    assert!(rare.tpot.unwrap().mean < flood.tpot.unwrap().mean, "company slows everyone");
}

/// The clock jumps over the time in which nobody is there.
#[test]
fn an_idle_engine_waits_for_the_next_arrival() {
    let (trace, cost) = (trace(3, 20), moe());
    let setup = open(2, Arrivals::Times { ms: vec![5.0, 5000.0, 5000.0] });
    let ran = play(&trace, &cost, &setup, "chain", "{}").unwrap();
    let admitted: Vec<f64> = ran.engine.visits().iter().map(|v| v.admitted_ms).collect();
    assert_eq!(admitted[..2], [5.0, 5000.0]);
    // The two that come together: the second one's prompt runs behind the first one's.
    assert!(admitted[2] > 5000.0 && admitted[2] < 5020.0);
}

/// 10 bytes a token.
fn room(tokens: u32) -> Room {
    let bytes = f64::from(tokens) * 10.0;
    Room {
        usable_bytes: bytes,
        weights: Weights::default(),
        drafter_bytes: 0.0,
        reserve_bytes: 0.0,
        kv_room_bytes: bytes,
        kv_bytes_per_token: 10.0,
        drafter_kv_bytes_per_token: 0.0,
        window_kv_bytes_per_token: 0.0,
        window: 0,
        page_tokens: 1,
        tokens: u64::from(tokens),
    }
}

#[test]
fn a_cap_whose_kv_never_fits_is_refused_before_the_run() {
    let (trace, cost) = (trace(20, 40), moe());
    let made = |slots, tokens| {
        let setup = BatchSetup { kv: Some(room(tokens)), context: Some(1000), ..closed(slots, 7) };
        PricedEngine::new(trace.clone(), cost.clone(), setup).err()
    };
    assert_eq!(made(16, 20_000), None);
    let Some(BatchError::DoesNotFit(why)) = made(16, 8_000) else { panic!("taken") };
    assert!(why.missing_bytes() > 0 && (6..8).contains(&why.largest_cap()), "{why}");
    assert_eq!(made(why.largest_cap(), 8_000), None, "the cap that it names is within reach");
    assert!(made(why.largest_cap() + 1, 8_000).is_some());
}

/// Long requests wait until there is room, and hold up those behind them; nothing is thrown out, nothing hangs.
#[test]
fn requests_wait_for_room() {
    let (base, cost) = (trace(12, 40), moe());
    let mut longer = (*base).clone();
    longer.requests[4].prompt_tokens = 600;
    let trace = std::sync::Arc::new(longer);
    let setup = BatchSetup { kv: Some(room(720)), ..closed(4, 7) };
    let ran = play(&trace, &cost, &setup, "best-first", "{}").unwrap();
    assert!(ran.responses.iter().all(|r| r.end.is_ok()));
    let visits = ran.engine.visits();
    let need = |id: u64| {
        let r = &trace.requests[(id - 100) as usize];
        r.prompt_tokens + r.max_new + 8
    };
    for v in visits {
        let running = visits.iter().filter(|o| o.admitted_ms <= v.admitted_ms && o.end_ms.unwrap() > v.admitted_ms);
        assert!(running.map(|o| need(o.request)).sum::<u32>() <= 720, "request {}", v.request);
    }
    assert!(visits.windows(2).all(|w| w[0].admitted_ms <= w[1].admitted_ms));
    let lonely = ran.rounds.iter().filter(|r| r.entries.iter().any(|e| e.request == 104));
    assert!(lonely.clone().count() > 3 && lonely.clone().all(|r| r.entries.len() < 4), "it fills most of the room");
}

/// A request that would not fit alone ends alone; its neighbours are served.
#[test]
fn a_request_beyond_all_room_ends_alone() {
    let (base, cost) = (trace(6, 30), moe());
    let mut longer = (*base).clone();
    longer.requests[2].prompt_tokens = 3000;
    let trace = std::sync::Arc::new(longer);
    let setup = BatchSetup { kv: Some(room(700)), ..closed(2, 7) };
    let ran = play(&trace, &cost, &setup, "best-first", "{}").unwrap();
    let failed: Vec<u64> = ran.responses.iter().filter(|r| r.end.is_err()).map(|r| r.request).collect();
    assert_eq!(failed, [102]);
    assert!(matches!(&ran.responses[2].end, Err(Fault::Request(why)) if why.contains("KV")));
    assert_eq!(ran.engine.visits().len(), 5);
}
