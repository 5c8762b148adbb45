mkdir new
cd new
