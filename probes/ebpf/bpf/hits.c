/* Counts hits of probed functions, for `gputop check`. Each probe's cookie is its row.
 *
 * probes/ebpf/hits.py puts HITS_ROWS in front of this text.
 */
#include <uapi/linux/ptrace.h>

static u64 (*get_attach_cookie)(void *ctx) = (void *)174;

BPF_ARRAY(hits, u64, HITS_ROWS);

int on_hit(struct pt_regs *ctx)
{
	u32 row = get_attach_cookie(ctx);
	u64 *count = hits.lookup(&row);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}
