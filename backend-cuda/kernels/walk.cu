// The accepted path of each tree: from the root down for as long as a child carries the target's token.
//
// LEVELS = deepest level. A warp a sequence.
#include "rows.cuh"
#include "select.cuh"

#define STEPS (LEVELS + 1)

// What went wrong, as the host names it; beside it the depth, the tree row or the position.
#define FAULT_DRAFT 1
#define FAULT_LOGITS 2
#define FAULT_TRACE 3

struct WalkArgs {
    Rows rows;
    const u32 *token;       // node i of sequence s at s * stride + i, or at seq_begin[s] + i where stride is 0
    const u32 *parent;      // the same
    const u32 *judged;      // [rows] the target's token of each row, NONE = unusable; or null
    const u32 *truth;       // [seqs][STEPS] token at depth 1, 2, .., NONE = the trace ends; where `judged` is null
    const u32 *draft_fault; // [seqs] depth of an unusable drafter row, or 0; or null
    u32 *path;              // [seqs][STEPS] accepted nodes behind the root, path[0] = 0
    u32 *len;               // [seqs] accepted + 1; 0 = fault or padding
    u32 *emitted;           // [seqs][STEPS] accepted tokens, then the bonus
    u32 *bonus;             // [seqs]
    u32 *fault;             // [seqs][2]
    u32 seqs;
    u32 stride;
};

TL_KERNEL(walk, WalkArgs, 32) {
    __shared__ u32 tokens[MASK_WORDS * 32];
    __shared__ u32 parents[MASK_WORDS * 32];
    __shared__ u32 judged[MASK_WORDS * 32];
    u32 s = blockIdx.x, lane = threadIdx.x;
    u32 n = p.rows.seq_rows[s], begin = p.rows.seq_begin[s];
    n = n < MASK_WORDS * 32 ? n : MASK_WORDS * 32;
    u64 first = p.stride ? (u64)s * p.stride : begin;
    for (u32 i = lane; i < n; i += 32) {
        tokens[i] = p.token[first + i];
        parents[i] = p.parent[first + i];
        judged[i] = p.judged ? p.judged[begin + i] : 0;
    }
    __syncwarp();
    u32 *path = p.path + (u64)s * STEPS, *emitted = p.emitted + (u64)s * STEPS;
    u32 kind = 0, value = 0, node = 0, depth = 0, token = NONE;
    if (n > 0 && p.draft_fault && p.draft_fault[s]) kind = FAULT_DRAFT, value = p.draft_fault[s];
    while (n > 0 && kind == 0) {
        token = p.judged ? judged[node] : p.truth[(u64)s * STEPS + depth];
        if (token == NONE) {
            kind = p.judged ? FAULT_LOGITS : FAULT_TRACE;
            value = p.judged ? node : p.rows.seq_start[s] + depth + 1;
            break;
        }
        if (lane == 0) path[depth] = node, emitted[depth] = token;
        // Children lie behind their parent; the first that carries the token.
        u32 child = 0;
        for (u32 i = node + 1; i < n && child == 0 && depth < LEVELS; i += 32) {
            u32 at = i + lane;
            u32 hit = __ballot_sync(LANES, at < n && parents[at] == node && tokens[at] == token);
            if (hit) child = i + (u32)__ffs((i32)hit) - 1;
        }
        if (child == 0) break;
        node = child;
        depth++;
    }
    if (lane != 0) return;
    bool good = n > 0 && kind == 0;
    p.len[s] = good ? depth + 1 : 0;
    p.bonus[s] = good ? token : NONE;
    p.fault[2 * s] = kind;
    p.fault[2 * s + 1] = value;
}
