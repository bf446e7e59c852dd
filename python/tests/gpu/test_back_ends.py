"""Sirtaki beside PyTorch's own back ends in one process group, and what a job holds of a GPU."""

import pytest
from jobs import Job


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("back_ends", ["cpu:sirtaki,cuda:nccl", "cpu:gloo,cuda:sirtaki"])
def test_one_back_end_for_each_kind_of_tensor(tmp_path, back_ends, ranks):
    code, text = Job(
        tmp_path,
        f"""
        dist.init_process_group("{back_ends}")
        for device in ("cpu", DEVICE):
            tensor = torch.full((1000,), dist.get_rank() + 1.0, device=device)
            dist.all_reduce(tensor)
            assert tensor.eq(sum(range(1, {ranks} + 1))).all()
            whole = [torch.empty(3, device=device) for _ in range({ranks})]
            dist.all_gather(whole, torch.full((3,), float(dist.get_rank()), device=device))
            assert [one[0].item() for one in whole] == list(range({ranks}))
            dist.broadcast(tensor.fill_(dist.get_rank()), {ranks} - 1)
            assert tensor.eq({ranks} - 1).all()
        group = dist.new_group([0, 1])
        if dist.get_rank() < 2:
            for device in ("cpu", DEVICE):
                tensor = torch.ones(3, device=device)
                dist.all_reduce(tensor, group=group)
                assert tensor.eq(2).all()
        dist.barrier()
        dist.destroy_process_group()
        print("fine", flush=True)
        """,
        ranks,
    ).end()
    assert code == 0 and text.count("fine") == ranks, text


def test_the_truth_about_nccl(tmp_path):
    code, text = Job(
        tmp_path,
        """
        major, minor, patch = torch.cuda.nccl.version()
        assert hvd.nccl_built() == 10000 * major + 100 * minor + patch, hvd.nccl_built()
        assert hvd.cuda_built()
        print("fine", flush=True)
        """,
    ).end()
    assert code == 0 and text.count("fine") == 2, text


def test_memory_of_the_gpu_is_given_back(tmp_path):
    code, text = Job(
        tmp_path,
        """
        def free():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            hvd.barrier()
            return torch.cuda.mem_get_info()[0]

        before = None
        for round in range(30):
            sets = hvd.add_process_set([0]) if round % 2 else hvd.add_process_set([1])
            if sets.included():
                hvd.allreduce(torch.ones(1 << 20, device=DEVICE), process_set=sets)
            hvd.allreduce_(large, op=hvd.Average)
            hvd.remove_process_set(sets)
            before = free() if round == 4 else before
        lost = before - free()
        print("lost", lost >> 20, "MiB", flush=True)
        assert lost < 64 << 20
        """,
    ).end()
    assert code == 0, text
