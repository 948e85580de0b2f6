// Grouped-query attention of tree rows on tensor cores, in bfloat16, for heads of 64 or 128 dimensions: the Hopper form.
//
// The same work as the portable form (`gqa_attend_smxx.cu`), with products of whole warpgroups that read keys and values from
// shared memory. WARPGROUPS warpgroups of 64 pairs each share the keys; they need not march in step: a step may begin when
// all threads have brought their part of it, so that one warpgroup's softmax runs beside another's products.
//
// Besides those of `gqa_tile.cuh`: WARPGROUPS, STAGES, AHEAD (steps that are being fetched).
#define KEYS 64
#define TILE_M (64 * WARPGROUPS)
#define THREADS (128 * WARPGROUPS)
#include "gqa_tile.cuh"
#include "wgmma.cuh"

#define HALVES (DIM / 64)
#define HALF_BYTES (64 * 128)
#define TILE_BYTES (HALVES * HALF_BYTES)

// Rows of 64 numbers (128 bytes) lie behind each other, swizzled as the tensor cores read them; wider rows go on in the next
// half. Tiles begin at multiples of 1024 bytes.
TL_DEVICE u8 *chunk_at(u8 *tile, u32 row, u32 chunk) {
    return tile + chunk / 8 * HALF_BYTES + row * 128 + ((chunk % 8) ^ (row & 7)) * 16;
}

TL_KERNEL(gqa_attend_sm90, GqaTileArgs, THREADS) {
#if defined(TL_SM90A) || defined(TL_EMULATED)
    TL_SHARED(memory);
    __shared__ Job job;
    __shared__ u32 has_job;
    __shared__ u32 broken[2];
    __shared__ u64 full[STAGES];
    griddep_launch();
    griddep_wait();
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = threadIdx.x / 128;
    u32 g = lane / 4, t = lane % 4;
    if (warp == 0) {
        bool found = find_job(p.rows, p.seqs, p.window, p.slots, p.cuts, &job);
        if (lane == 0) {
            has_job = found;
            for (int s = 0; s < STAGES; s++) mbar_init(&full[s], THREADS / 32);
            mbar_fence_init();
        }
    }
    __syncthreads();
    if (!has_job) return;

    u32 start = job.start, pairs = job.pairs;
    const u64 stride = (u64)KV_HEADS * DIM;
    const u64 base = ((u64)job.kv * KV_HEADS + job.kv_head) * DIM;
    u8 *queries = memory + (1024 - shared_addr(memory) % 1024) % 1024, *stages = queries + WARPGROUPS * TILE_BYTES;
    u32 blocks = (job.end - job.begin + KEYS - 1) / KEYS;

    auto fetch = [&](u32 block) {
        if (block < blocks) {
            u8 *k = stages + block % STAGES * (2 * TILE_BYTES), *v = k + TILE_BYTES;
            u32 key = job.begin + block * KEYS;
#pragma unroll
            for (int i = 0; i < (KEYS * CHUNKS + THREADS - 1) / THREADS; i++) {
                u32 item = i * THREADS + threadIdx.x, row = item / CHUNKS, chunk = item % CHUNKS;
                if (KEYS * CHUNKS % THREADS && item >= KEYS * CHUNKS) break;
                bool valid = key + row < job.end;
                u64 from = base + (valid ? key + row : job.begin) * stride + chunk * 8;
                cp_async16_zfill(chunk_at(k, row, chunk), p.k + from, valid);
                cp_async16_zfill(chunk_at(v, row, chunk), p.v + from, valid);
            }
        }
        cp_async_commit();
    };
    // What this thread has fetched for `block` has arrived: says so for its warp.
    auto arrive = [&](u32 block) {
        fence_async();
        __syncwarp();
        if (lane == 0) mbar_arrive(&full[block % STAGES]);
    };
    for (u32 item = threadIdx.x; item < TILE_M * CHUNKS; item += THREADS) {
        u32 m = item / CHUNKS, chunk = item % CHUNKS, pair = job.first_pair + (m < pairs ? m : 0);
        u64 row = job.row + pair / GROUP, head = job.kv_head * GROUP + pair % GROUP;
        u8 *to = chunk_at(queries + m / 64 * TILE_BYTES, m % 64, chunk);
        cp_async16_zfill(to, p.q + (row * HEADS + head) * DIM + chunk * 8, m < pairs);
    }
#pragma unroll
    for (int block = 0; block < AHEAD; block++) fetch(block);
    cp_async_wait<AHEAD - 1>();
    arrive(0);

    bool busy = group * 64 < pairs;
    u32 own_row = warp % 4 * 16 + g, own_pair = group * 64 + own_row;
    float acc[DIM / 2], top[2] = {MINUS_INFINITY, MINUS_INFINITY}, sum[2] = {0.0f, 0.0f};
    clear(acc);
    const u64 query = wgmma_operand(queries + group * TILE_BYTES, 0, 1024, WGMMA_SWIZZLE_128);

#pragma unroll 1
    for (u32 block = 0; block < blocks; block++) {
        mbar_wait(&full[block % STAGES], block / STAGES % 2);
        // The stage that is filled here was read in step block + AHEAD - STAGES. All others have been seen in step block - 1 now,
        // where the products of step block - 2 may still run: STAGES = AHEAD + 3 is safe, less is not.
        fetch(block + AHEAD);
        cp_async_wait<AHEAD - 1>();
        if (block + 1 < blocks) arrive(block + 1);
        u32 key = job.begin + block * KEYS;
        u8 *keys = stages + block % STAGES * (2 * TILE_BYTES), *values = keys + TILE_BYTES;
        u64 bad = 0;
        if (key + KEYS > start) {
            // All products of earlier steps are done with before values change under this one's.
            bad = take_out_broken(broken, [&](u32 row, u32 chunk) { return chunk_at(values, row, chunk); });
        }
        if (!busy) continue;

        float score[32];
        const u64 key_tile = wgmma_operand(keys, 0, 1024, WGMMA_SWIZZLE_128);
        wgmma_keep(score);
        wgmma_fence();
#pragma unroll
        for (int d = 0; d < DIM / 16; d++) {
            u32 at = d / 4 * HALF_BYTES + d % 4 * 32;
            wgmma_ss<0, 0>(score, wgmma_advance(query, at), wgmma_advance(key_tile, at), d > 0);
        }
        wgmma_commit();
        // This waits for the values' products of the step before as well.
        wgmma_wait<0>();
        wgmma_keep(score);
        wgmma_keep(acc);

        if (key + KEYS > start || (p.window && key + p.window < start + job.rows)) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                u32 pair = job.first_pair + min(own_pair + 8 * h, pairs - 1);
                u64 bits = sees(p.rows, job, job.row + pair / GROUP, key, p.window, p.window_tail);
                if (bits & bad) sum[h] = __uint_as_float(0x7fc00000u);
                bits >>= 2 * t;
#pragma unroll
                for (int c = 0; c < 8; c++) {
                    if (!(bits >> (8 * c) & 1)) score[4 * c + 2 * h] = MINUS_INFINITY;
                    if (!(bits >> (8 * c) & 2)) score[4 * c + 2 * h + 1] = MINUS_INFINITY;
                }
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float most = score[2 * h];
#pragma unroll
            for (int c = 0; c < 8; c++) most = fmaxf(most, fmaxf(score[4 * c + 2 * h], score[4 * c + 2 * h + 1]));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            most = fmaxf(top[h], most * LOG2_E);
            float scale = most == top[h] ? 1.0f : exp2_approx(top[h] - most);
            float less = most == MINUS_INFINITY ? 0.0f : most;
            top[h] = most;
            sum[h] *= scale;
#pragma unroll
            for (int c = 0; c < 8; c++) {
#pragma unroll
                for (int i = 4 * c + 2 * h; i < 4 * c + 2 * h + 2; i++) {
                    score[i] = exp2_approx(score[i] * LOG2_E - less);
                    sum[h] += score[i];
                }
            }
#pragma unroll
            for (int c = 0; c < DIM / 8; c++) acc[4 * c + 2 * h] *= scale, acc[4 * c + 2 * h + 1] *= scale;
        }
        u32 weight[4][4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
#pragma unroll
            for (int i = 0; i < 4; i++) weight[c][i] = pack_bf16x2(score[8 * c + 2 * i], score[8 * c + 2 * i + 1]);
        }
        const u64 value_tile = wgmma_operand(values, HALF_BYTES, 1024, WGMMA_SWIZZLE_128);
        wgmma_keep(acc);
        wgmma_fence();
#pragma unroll
        for (int c = 0; c < 4; c++) wgmma_rs<1>(acc, weight[c], wgmma_advance(value_tile, c * 2048), true);
        wgmma_commit();
    }
    wgmma_wait<0>();
    wgmma_keep(acc);
    if (!busy) return;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
        sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
        u32 m = own_pair + 8 * h;
        if (m >= pairs) continue;
        Target to = target_of(p, job, m);
        float over = !to.out ? 1.0f : sum[h] == 0.0f ? 0.0f : 1.0f / sum[h];
        if (!to.out && t == 0) to.top[0] = top[h], to.top[1] = sum[h];
#pragma unroll
        for (int c = 0; c < DIM / 8; c++) {
            float two[2] = {acc[4 * c + 2 * h] * over, acc[4 * c + 2 * h + 1] * over};
            if (to.out) {
                store(to.out + c * 8 + 2 * t, two);
            } else {
                store(to.part + c * 8 + 2 * t, two);
            }
        }
    }
#endif
}
