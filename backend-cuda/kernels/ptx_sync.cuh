// The part of `ptx.cuh` about order: between threads, blocks, kernels and the copy engine.
#pragma once

// ---- Between blocks -----------------------------------------------------------------------------------------------------

TL_DEVICE void fence_block() { __threadfence_block(); }
TL_DEVICE void fence_gpu() { __threadfence(); }

// A block may wait for blocks with a lower number: those signal with `red_release_add` (or `st_release`) after their writes
// and a barrier, it polls with `ld_acquire` before its reads.
TL_DEVICE u32 ld_acquire(const u32 *p) {
    u32 v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
TL_DEVICE void st_release(u32 *p, u32 v) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
TL_DEVICE void red_release_add(u32 *p, u32 v) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
// Returns the value before; orders both ways ("the last block to arrive does the rest").
TL_DEVICE u32 atom_acq_rel_add(u32 *p, u32 v) {
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(p), "r"(v) : "memory");
    return before;
}

// ---- Between kernels (programmatic dependent launch) ----------------------------------------------------------------------

// Waits until the kernels before this one are complete and their writes visible; without effect in a plain launch.
TL_DEVICE void griddep_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// Lets the next kernel start as soon as every block has said so or ended.
TL_DEVICE void griddep_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// ---- Where and when -------------------------------------------------------------------------------------------------------

TL_DEVICE u32 smid() {
    u32 v;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(v));
    return v;
}
// Nanoseconds of a clock that all multiprocessors share.
TL_DEVICE u64 globaltimer() {
    u64 v;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
    return v;
}

// ---- Between some warps of a block ------------------------------------------------------------------------------------------

// Barrier number `id` (1..15; 0 is __syncthreads) among `threads` threads, a multiple of 32. `bar_arrive` does not wait.
TL_DEVICE void bar_sync(u32 id, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
TL_DEVICE void bar_arrive(u32 id, u32 threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// ---- mbarrier and bulk copies -------------------------------------------------------------------------------------------------

// A barrier in shared memory whose phase ends when `count` arrivals and all announced bytes have come.
TL_DEVICE void mbar_init(u64 *bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_addr(bar)), "r"(count) : "memory");
}
// Makes initialised barriers visible to the copy engine; then a __syncthreads makes them so to the block.
TL_DEVICE void mbar_fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
TL_DEVICE void mbar_arrive(u64 *bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_addr(bar)) : "memory");
}
// An arrival that happens once all `cp_async…` that this thread has issued so far are complete; the thread goes on at once.
TL_DEVICE void mbar_arrive_copies(u64 *bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_addr(bar)) : "memory");
}
// Arrives and announces `bytes` that copies will bring in this phase.
TL_DEVICE void mbar_arrive_expect(u64 *bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_addr(bar)), "r"(bytes) : "memory");
}
// Whether the phase of this parity (0 for the first, then 1, 0, …) has ended.
TL_DEVICE bool mbar_try(u64 *bar, u32 parity) {
    u32 done;
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_addr(bar)), "r"(parity)
                 : "memory");
    return done != 0;
}
TL_DEVICE void mbar_wait(u64 *bar, u32 parity) {
    while (!mbar_try(bar, parity)) {
    }
}

// `bytes` (a multiple of 16, both ends 16-byte aligned) from global to shared by the copy engine, issued by one thread; they
// count towards `bar`.
TL_DEVICE void bulk_copy(void *shared, const void *global, u32 bytes, u64 *bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_addr(shared)),
                 "l"(global), "r"(bytes), "r"(shared_addr(bar))
                 : "memory");
}
TL_DEVICE void bulk_copy_hint(void *shared, const void *global, u32 bytes, u64 *bar, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
                 "%4;" ::"r"(shared_addr(shared)),
                 "l"(global), "r"(bytes), "r"(shared_addr(bar)), "l"(policy)
                 : "memory");
}
// Shared memory that ordinary stores wrote becomes visible to tensor cores and copy engine (each writing thread, before the
// barrier); also before the copy engine overwrites what threads have read.
TL_DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
